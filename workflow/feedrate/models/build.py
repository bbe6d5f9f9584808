"""Building the model of a run: its builder, its checkpoint and its tokenizer.

A model is one file in `models/builders/`: a function `build`, and constants (docs/extending.md).
Checkpoints are read from a folder or the hub: only safetensors, and never remote code. Planning
imports this module, so torch and transformers are imported late.
"""

from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from feedrate.config.settings import BUILDERS, LoaderSettings, ModelSettings
from feedrate.config.spec import model_faults
from feedrate.core import paths, plugins
from feedrate.core.errors import ExpectedError, first_line
from feedrate.data.manifest import CAPTION, TOKENIZER

if TYPE_CHECKING:
    import torch


class ModelError(ExpectedError):
    """The model cannot be built; the message says why and what to do."""


@dataclass(frozen=True, kw_only=True)
class Built:
    """A model ready to train, with all that its data path needs."""

    model: Any
    tokenizer: Any
    image_px: int  # side of the square images that it takes
    mean: tuple[float, float, float]
    std: tuple[float, float, float]  # statistics of the pixels, by channel
    other_outputs: tuple[str, ...]  # without the loss and the outputs that evaluation scores
    layers: "tuple[type[torch.nn.Module], ...]"  # units of checkpointing and of sharding
    encoders: "tuple[type[torch.nn.Module], ...]" = ()  # of layers; units of the first FSDP
    column: str = CAPTION  # column of the prepared data that the tokenizer reads
    scores: Literal["retrieval", "accuracy"] = "retrieval"
    """What evaluation computes from the outputs: text and image embeddings, or class logits."""
    answers: tuple[str, ...] = ()  # outputs that answer, of a model with a head for inference
    made_on: str | None = None  # type of the device of the first weights; None: empty
    outline: Any = None  # a copy of the model on torch's meta device, as built, for `count_flops`

    @property
    def parameters(self) -> int:
        """Parameters, trained or not."""
        return sum(p.numel() for p in self.model.parameters())


def build(
    settings: ModelSettings,
    loader: LoaderSettings,
    prepared: Path,
    head: str | None = None,
    *,
    on: "str | torch.device" = "cpu",
    empty: bool = False,
) -> Built:
    """The model that `settings` name, to train, or with a head for inference. It has a checkpoint's
    weights, read to the host, or random ones of torch's generator `on` a device, where all its
    tensors are made, and the tokenizer in `prepared`, the dataset's folder. The weights of an
    `empty` model are undefined, and take no memory until they are written. Raises ModelError."""
    import torch

    from feedrate.models.flops import outline_of
    from feedrate.models.layers import checkpoint_layers

    for fault in model_faults(settings):
        raise ModelError(fault)
    heads = heads_of(settings.name)
    if head is not None and head not in heads:
        names = ", ".join(heads) or "none"
        raise ModelError(f"inference.head: {head!r}: {settings.name} has {names}")
    place: Any = nullcontext() if settings.checkpoint else torch.device(on)
    weightless: Any = nullcontext
    if empty:  # transformers 4, on Gaudi, lacks it
        from transformers.initialization import no_init_weights

        weightless = no_init_weights
    builder: Any = plugins.load(BUILDERS, settings.name)
    arguments = [] if head is None else [head]
    with place, weightless():
        built: Built = builder.build(settings, loader, prepared, *arguments)
    model = built.model
    if empty and hasattr(model, "tie_weights"):
        model.tie_weights()
    if head is not None:
        model.eval().requires_grad_(False)
    outline = outline_of(model)
    if settings.checkpointing:
        checkpoint_layers(model, built.layers)
    made_on = None if empty else next(model.parameters()).device.type
    answers = () if head is None else heads[head]
    return replace(built, answers=answers, made_on=made_on, outline=outline)


def heads_of(model: str) -> dict[str, tuple[str, ...]]:
    """A model's heads for inference, with the outputs that are their answers."""
    return plugins.declared(BUILDERS, "HEADS").get(model, {})


def build_bare(settings: ModelSettings, loader: LoaderSettings, prepared: Path) -> Built:
    """The model for its sizes: random weights are on the meta device, where they take no memory."""
    return build(settings, loader, prepared, on="meta")


# Checkpoints


def is_on_hub(name: str) -> bool:
    """Whether a checkpoint is on the hub: it is no path and no folder."""
    return name[:1] not in (".", "/", "~") and not Path(name).is_dir()


def local_folder(settings: ModelSettings) -> Path | None:
    """The folder that `model.checkpoint` names; None if it is on the hub, or null."""
    name = settings.checkpoint
    return paths.expand(name) if name and not is_on_hub(name) else None


def fetched_index(settings: ModelSettings) -> Path | None:
    """fetched.json of a hub checkpoint that the workflow has fetched, else None."""
    name = settings.checkpoint
    key = paths.checkpoint_key(name or "", settings.revision)
    fetched = Path(paths.CHECKPOINT.format(checkpoint=key))
    return fetched if name and is_on_hub(name) and fetched.is_file() else None


def find_checkpoint(settings: ModelSettings) -> str:
    """The folder of `model.checkpoint`, or its hub name if not fetched. Raises ModelError."""
    name, fetched = settings.checkpoint or "", fetched_index(settings)
    if is_on_hub(name) and fetched is None:
        return name
    folder = fetched.parent if fetched else paths.expand(name)
    if not folder.is_dir():
        raise ModelError(f"model.checkpoint: {name}: no such folder")
    if not any(folder.glob("*.safetensors")):
        pickles = ", ".join(file.name for file in sorted(folder.glob("*.bin")))
        weights = f"only {pickles}, which is a pickle" if pickles else "no weights"
        raise ModelError(
            f"model.checkpoint: {name}: no *.safetensors file there ({weights}); "
            "only safetensors are read"
        )
    if not (folder / "config.json").is_file():  # transformers 5 would use its defaults instead
        raise ModelError(f"model.checkpoint: {name}: no config.json there")
    return str(folder)


def load_part(kind: Any, settings: ModelSettings, **options: Any) -> Any:
    """The checkpoint's configuration, tokenizer or model, of class `kind`. Raises ModelError."""
    from safetensors import SafetensorError

    name = find_checkpoint(settings)
    try:
        return kind.from_pretrained(name, revision=settings.revision or "main", **options)
    except (OSError, ValueError, RuntimeError, TypeError, SafetensorError) as error:
        cause = f": {first_line(error)}"
        if not Path(name).is_dir():
            cause = (
                f" (revision {settings.revision or 'main'}) cannot be loaded from the hub{cause}; "
                "without a network give a folder, or null for random weights"
            )
        raise ModelError(f"model.checkpoint: {settings.checkpoint}{cause}") from error


def load_model(kind: Any, settings: ModelSettings, config: Any, **options: Any) -> Any:
    """The checkpoint's model with its weights converted to fp32. Raises ModelError."""
    return load_part(kind, settings, config=config, use_safetensors=True, **options).float()


def load_config(kind: Any, settings: ModelSettings) -> Any:
    """The checkpoint's configuration, of the class `kind`. Raises ModelError for one of another
    model: with only a warning, the library would leave weights of other names random."""
    config = load_part(kind, settings)
    revision = settings.revision or "main"
    values, _ = kind.get_config_dict(find_checkpoint(settings), revision=revision)
    model = values.get("model_type", kind.model_type)
    if model != kind.model_type:
        mismatch = f"it is of the model {model}, and model.name is {settings.name}"
        raise ModelError(f"model.checkpoint: {settings.checkpoint}: {mismatch}")
    return config


# Tokenizers


def find_tokenizer(settings: ModelSettings, prepared: Path, vocabulary: int) -> Any:
    """The checkpoint's tokenizer, of its own class if this transformers has it; for random weights
    that of the prepared data, which may have `vocabulary` tokens. Raises ModelError."""
    from transformers import AutoTokenizer, PreTrainedTokenizerFast

    if settings.checkpoint is None:
        return prepared_tokenizer(prepared, vocabulary, settings.size)
    try:
        tokenizer = load_part(AutoTokenizer, settings, trust_remote_code=False)
    except ModelError:  # transformers 5 saves class names that 4.55 does not know
        tokenizer = load_part(PreTrainedTokenizerFast, settings)
    # Without the files, transformers 5 makes a tokenizer that has only the special tokens.
    if len(tokenizer) <= len(set(tokenizer.all_special_ids)):
        raise ModelError(f"model.checkpoint: {settings.checkpoint}: no tokenizer there")
    return tokenizer


def prepared_tokenizer(prepared: Path, vocabulary: int, size: str) -> Any:
    """The tokenizer of the prepared data, which may have `vocabulary` tokens. Raises ModelError."""
    from transformers import PreTrainedTokenizerFast

    folder = prepared / TOKENIZER
    if not (folder / "tokenizer.json").is_file():
        raise ModelError(f"{folder}: no tokenizer there; prepare the data again")
    tokenizer = PreTrainedTokenizerFast.from_pretrained(str(folder))
    if len(tokenizer) > vocabulary:
        limit = f"model.size {size} takes at most {vocabulary}"
        raise ModelError(f"the prepared tokenizer has {len(tokenizer)} tokens, {limit}")
    if tokenizer.pad_token_id is None:
        raise ModelError("the prepared tokenizer has no padding token")
    return tokenizer


def check_length(max_tokens: int, longest: int) -> None:
    """Raise ModelError if captions may be longer than the model has positions."""
    if max_tokens > longest:
        raise ModelError(f"loader.max_tokens: {max_tokens} is more than the model's {longest}")
