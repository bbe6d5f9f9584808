"""Weights and tokenizers from a folder or the hub: only safetensors, and never remote code."""

from pathlib import Path
from typing import Any

from feedrate.config.settings import ModelSettings
from feedrate.core import paths
from feedrate.models.build import ModelError


def is_on_hub(name: str) -> bool:
    """Whether a checkpoint is on the hub: it is not if its name begins with `.`, `/` or `~`, or if
    such a folder exists."""
    return name[:1] not in (".", "/", "~") and not Path(name).is_dir()


def local_folder(settings: ModelSettings) -> Path | None:
    """The folder that `model.checkpoint` names; None if it is on the hub, or null."""
    name = settings.checkpoint
    return Path(name).expanduser() if name and not is_on_hub(name) else None


def fetched_index(settings: ModelSettings) -> Path | None:
    """fetched.json of a hub checkpoint that the workflow has fetched, else None."""
    name = settings.checkpoint
    if not name or not is_on_hub(name):
        return None
    key = paths.checkpoint_key(name, settings.revision)
    fetched = Path(paths.CHECKPOINT.format(checkpoint=key))
    return fetched if fetched.is_file() else None


def find_checkpoint(settings: ModelSettings) -> str:
    """The folder of `model.checkpoint`, or its hub name if the workflow has not fetched it.

    Raises ModelError for a folder without weights.
    """
    name, fetched = settings.checkpoint or "", fetched_index(settings)
    if is_on_hub(name) and fetched is None:
        return name
    folder = fetched.parent if fetched else Path(name).expanduser()
    if not folder.is_dir():
        raise ModelError(f"model.checkpoint: {name}: no such folder")
    if not any(folder.glob("*.safetensors")):
        others = ", ".join(file.name for file in sorted(folder.glob("*.bin")))
        found = f"only {others}, which is a pickle" if others else "no weights"
        raise ModelError(
            f"model.checkpoint: {name}: no *.safetensors file there ({found}); "
            "only safetensors are read"
        )
    if not (folder / "config.json").is_file():  # transformers 5 would use its defaults instead
        raise ModelError(f"model.checkpoint: {name}: no config.json there")
    return str(folder)


def load_part(kind: Any, settings: ModelSettings, **options: Any) -> Any:
    """`kind.from_pretrained` of the checkpoint (a configuration, a tokenizer or a model).

    Raises ModelError if a part is missing or broken, or if the hub cannot be reached.
    """
    from safetensors import SafetensorError  # not needed by planning, which imports this module

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

    Raises ModelError for a checkpoint of another model: the library would load the weights that
    have the same names and leave the others random, with only a warning.
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
    """The checkpoint's tokenizer, of its own class if this version of transformers has it.

    Raises ModelError if there is none.
    """
    from transformers import AutoTokenizer, PreTrainedTokenizerFast  # slow, and only needed here

    try:
        tokenizer = load_part(AutoTokenizer, settings, trust_remote_code=False)
    except ModelError:  # transformers 5 saves class names that 4.55 does not know
        tokenizer = load_part(PreTrainedTokenizerFast, settings)
    # Without the files, transformers 5 makes a tokenizer of special tokens alone.
    if len(tokenizer) <= len(set(tokenizer.all_special_ids)):
        raise ModelError(f"model.checkpoint: {settings.checkpoint}: no tokenizer there")
    return tokenizer
