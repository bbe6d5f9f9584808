"""The registry of models, and what a training job needs to know of one."""

import importlib
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from feedrate.config.settings import LoaderSettings, ModelSettings, model_sizes
from feedrate.core.errors import ExpectedError
from feedrate.data.manifest import CAPTION

BUILDERS = {name: f"feedrate.models.{name}" for name in model_sizes()}
"""Name in `model.name` to the module whose `build` makes it.

Such a module has `SIZES` (by name) and `OFFERS`: for settings that not every model has, the values
that it takes; of a setting that is not named there, only the default. Where it has heads for
inference, `HEADS` has them by name, and `build` takes a head's class."""

OPTIONAL = ("attention", "image_px", "head", "layout")
"""Settings that not every model has."""

if TYPE_CHECKING:
    import torch


class ModelError(ExpectedError):
    """The model cannot be built; the message says why and what to do."""


@dataclass(frozen=True)
class Head:
    """What a model is asked for in inference, by the library's class that answers it."""

    kind: "type[torch.nn.Module]"
    answers: tuple[str, ...]
    """Names of its outputs that are the answer."""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    """What its forward pass is told beside a batch."""


@dataclass(frozen=True, kw_only=True)
class Built:
    """A model ready to train, on the CPU, with what its data path needs."""

    model: Any
    tokenizer: Any
    image_px: int
    """Side of the square images that it takes."""
    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    """Statistics of the pixels, by channel."""
    count_flops: Callable[[], float]
    """FLOPs of a sample, forward and backward (of a head, forward alone); takes 0.3 s (tiny) to
    12 s (10B).

    They are the model's own: neither the attention that runs nor checkpointing changes them."""
    other_outputs: tuple[str, ...]
    """Outputs that evaluation has no use for: all but loss and what it scores."""
    layers: "tuple[type[torch.nn.Module], ...]"
    """The transformer's layers: the units of checkpointing and of sharding."""
    column: str = CAPTION
    """Column of the prepared data that the tokenizer reads."""
    scores: Literal["retrieval", "accuracy"] = "retrieval"
    """What evaluation makes of the outputs: text and image embeddings, or logits of classes."""

    @property
    def parameters(self) -> int:
        """Parameters, trained or not."""
        return sum(p.numel() for p in self.model.parameters())

    @property
    def attention(self) -> str:
        """The attention that the model would run now, whatever was asked for."""
        from feedrate.models.layers import running_attention  # imports torch

        return running_attention(self.model)


def build(settings: ModelSettings, loader: LoaderSettings, prepared: Path) -> Built:
    """Make the model that `settings` name, with random weights or a checkpoint's.

    `prepared` is the dataset's folder, whose tokenizer goes with random weights. Random weights
    come from torch's generator as it stands. Raises ModelError for a name, size or checkpoint
    that cannot be had.
    """
    made: Built = _builder(settings).build(settings, loader, prepared)
    if settings.checkpointing:
        from feedrate.models.layers import checkpoint_layers  # imports torch

        checkpoint_layers(made.model, made.layers)
    return made


def build_head(
    settings: ModelSettings, loader: LoaderSettings, prepared: Path, name: str
) -> tuple[Built, Head]:
    """The model with the head `name` (as `inference.head`), for inference; as `build` else."""
    from feedrate.models.flops import (
        forward_flops,
        one_pair,  # imports torch
    )

    heads: dict[str, Head] = getattr(_builder(settings), "HEADS", {})
    if name not in heads:
        known = ", ".join(heads) or "none"
        raise ModelError(f"inference.head: {name!r}: {settings.name} has {known}")
    head = heads[name]
    made: Built = _builder(settings).build(settings, loader, prepared, head.kind)
    made.model.eval().requires_grad_(False)
    pair = {**one_pair(made.image_px, loader.max_tokens), **head.arguments}
    return replace(made, count_flops=lambda: forward_flops(made.model, pair)), head


def build_bare(settings: ModelSettings, loader: LoaderSettings, prepared: Path) -> Built:
    """The same for what needs its sizes and its tokenizer alone: weights that would be random take
    no memory, whatever the size (they lie on torch's meta device)."""
    import torch

    with nullcontext() if settings.checkpoint else torch.device("meta"):
        return build(settings, loader, prepared)


def _builder(settings: ModelSettings) -> Any:
    """The module that builds the model. Raises ModelError where it does not offer the settings."""
    if settings.name not in BUILDERS:
        raise ModelError(f"model.name: {settings.name!r} is not one of {', '.join(BUILDERS)}")
    builder = importlib.import_module(BUILDERS[settings.name])
    _check(settings, builder)
    return builder


def _check(settings: ModelSettings, builder: Any) -> None:
    """Raise ModelError for a size or an optional setting that the builder does not have."""
    if settings.size not in builder.SIZES:
        known = ", ".join(builder.SIZES)
        raise ModelError(f"model.size: {settings.size!r} is not one of {known} ({settings.name})")
    defaults = ModelSettings(name=settings.name, size=settings.size)
    for name in OPTIONAL:
        value = getattr(settings, name)
        offered = builder.OFFERS.get(name, (getattr(defaults, name),))
        if value not in offered:
            choices = ", ".join("null" if one is None else str(one) for one in offered)
            raise ModelError(
                f"model.{name}: {value!r} is not what {settings.name} {settings.size} offers: "
                f"{choices}"
            )
