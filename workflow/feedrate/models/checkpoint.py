"""Weights and tokenizers from a folder or the hub: safetensors only, and no code of theirs."""

from pathlib import Path
from typing import Any

from feedrate.config.settings import ModelSettings
from feedrate.core import paths
from feedrate.models.build import ModelError


def is_on_hub(name: str) -> bool:
    """Whether a checkpoint's name is one of the hub: a name that begins with `.`, `/` or `~` is a
    folder; another is one if it exists."""
    return name[:1] not in (".", "/", "~") and not Path(name).is_dir()


def local_folder(settings: ModelSettings) -> Path | None:
    """The folder that `model.checkpoint` names; None for one of the hub, or none at all."""
    name = settings.checkpoint
    return Path(name).expanduser() if name and not is_on_hub(name) else None


def fetched_index(settings: ModelSettings) -> Path | None:
    """fetched.json of a hub checkpoint that the workflow has fetched; None: it has not."""
    name = settings.checkpoint
    if not name or not is_on_hub(name):
        return None
    key = paths.checkpoint_key(name, settings.revision)
    fetched = Path(paths.CHECKPOINT.format(checkpoint=key))
    return fetched if fetched.is_file() else None


def find_checkpoint(settings: ModelSettings) -> str:
    """The folder or hub name of `model.checkpoint`; raises ModelError for a folder without weights.

    Of a hub checkpoint that the workflow has fetched, the folder.
    """
    name = settings.checkpoint or ""
    folder = Path(name).expanduser()
    if is_on_hub(name):
        fetched = fetched_index(settings)
        if fetched is None:
            return name
        folder = fetched.parent
    if not folder.is_dir():
        raise ModelError(f"model.checkpoint: {name}: no such folder")
    if not any(folder.glob("*.safetensors")):
        others = [file.name for file in sorted(folder.glob("*.bin"))]
        found = f"only {', '.join(others)}, which is a pickle" if others else "no weights"
        raise ModelError(
            f"model.checkpoint: {name}: no *.safetensors file there ({found}); "
            "only safetensors are read"
        )
    if not (folder / "config.json").is_file():  # transformers 5 takes its defaults instead
        raise ModelError(f"model.checkpoint: {name}: no config.json there")
    return str(folder)


def load_part(kind: Any, settings: ModelSettings, **options: Any) -> Any:
    """`kind.from_pretrained` of the checkpoint (a configuration, a tokenizer or a model).

    Raises ModelError, in one sentence, where a part is missing or broken or the hub is not reached.
    """
    from safetensors import SafetensorError  # a plan, which reads this module, does without

    name = find_checkpoint(settings)
    try:
        return kind.from_pretrained(name, revision=settings.revision or "main", **options)
    except (OSError, ValueError, RuntimeError, TypeError, SafetensorError) as error:
        reason = str(error).strip().splitlines()[0]
        if Path(name).is_dir():
            raise ModelError(f"model.checkpoint: {settings.checkpoint}: {reason}") from error
        raise ModelError(
            f"model.checkpoint: {name} (revision {settings.revision or 'main'}) cannot be loaded "
            f"from the hub: {reason}; without a network give a folder, or null for random weights"
        ) from error


def load_model(kind: Any, settings: ModelSettings, config: Any, **options: Any) -> Any:
    """The checkpoint's model with fp32 weights, whatever the file holds. Raises ModelError."""
    return load_part(kind, settings, config=config, use_safetensors=True, **options).float()


def load_config(kind: Any, settings: ModelSettings) -> Any:
    """The checkpoint's configuration, of the class `kind`.

    Raises ModelError for a checkpoint of another model: the library would take what has the same
    name, and leave the rest of the weights random, with a warning alone.
    """
    config = load_part(kind, settings)
    revision = settings.revision or "main"
    values, _ = kind.get_config_dict(find_checkpoint(settings), revision=revision)
    found = values.get("model_type", kind.model_type)
    if found != kind.model_type:
        raise ModelError(
            f"model.checkpoint: {settings.checkpoint}: it is of the model {found}, and model.name "
            f"is {settings.name}"
        )
    return config


def load_tokenizer(settings: ModelSettings) -> Any:
    """The checkpoint's tokenizer, of its own class where this transformers has that.

    Raises ModelError where there is none.
    """
    from transformers import AutoTokenizer, PreTrainedTokenizerFast  # slow, and only needed here

    try:
        tokenizer = load_part(AutoTokenizer, settings, trust_remote_code=False)
    except ModelError:  # transformers 5 saves the names of classes that 4.55 does not know
        tokenizer = load_part(PreTrainedTokenizerFast, settings)
    # Where the files are missing, transformers 5 makes a tokenizer of special tokens alone.
    if len(tokenizer) <= len(set(tokenizer.all_special_ids)):
        raise ModelError(f"model.checkpoint: {settings.checkpoint}: no tokenizer there")
    return tokenizer
