"""Building the model of a run, and what a training job needs to know of it.

A model is one file in `models/builders/`: a function `build`, and these constants, which planning
reads without importing the file. All but SIZES may be missing.

SIZES    the sizes, by name
OFFERS   optional setting to the values that the model takes: a tuple, or a range as {"from": …,
         "to": …, "step": …}; of other optional settings it takes the default alone
HEADS    head for inference to the outputs that are its answer; `build` then takes a head's name
"""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from feedrate.config.settings import BUILDERS, LoaderSettings, ModelSettings
from feedrate.config.spec import model_faults
from feedrate.core import plugins
from feedrate.core.errors import ExpectedError
from feedrate.data.manifest import CAPTION

if TYPE_CHECKING:
    import torch


class ModelError(ExpectedError):
    """The model cannot be built; the message says why and what to do."""


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
    """FLOPs of a sample, forward and backward (with a head for inference, forward only); takes
    0.3 s (tiny) to 12 s (10B).

    They depend on the model alone: not on the attention that runs, nor on checkpointing."""
    other_outputs: tuple[str, ...]
    """Outputs that evaluation does not use: all but the loss and what it scores."""
    layers: "tuple[type[torch.nn.Module], ...]"
    """The transformer's layers: the units of checkpointing and of sharding."""
    column: str = CAPTION
    """Column of the prepared data that the tokenizer reads."""
    scores: Literal["retrieval", "accuracy"] = "retrieval"
    """What evaluation computes from the outputs: text and image embeddings, or class logits."""

    @property
    def parameters(self) -> int:
        """Parameters, trained or not."""
        return sum(p.numel() for p in self.model.parameters())

    @property
    def attention(self) -> str:
        """The attention that the model would run now, whatever the settings say."""
        from feedrate.models.layers import running_attention  # imports torch

        return running_attention(self.model)


def build(settings: ModelSettings, loader: LoaderSettings, prepared: Path) -> Built:
    """The model that `settings` name, with random weights or a checkpoint's.

    `prepared` is the dataset's folder, whose tokenizer goes with random weights. Random weights
    come from torch's generator as it is. Raises ModelError for a name, a size, a setting or a
    checkpoint that does not exist.
    """
    made: Built = _builder(settings).build(settings, loader, prepared)
    if settings.checkpointing:
        from feedrate.models.layers import checkpoint_layers  # imports torch

        checkpoint_layers(made.model, made.layers)
    return made


def build_head(
    settings: ModelSettings, loader: LoaderSettings, prepared: Path, head: str
) -> tuple[Built, tuple[str, ...]]:
    """The model with a head for inference (`inference.head`), and the outputs that answer."""
    from feedrate.models.flops import forward_flops, one_pair  # imports torch

    builder, heads = _builder(settings), heads_of(settings.name)
    if head not in heads:
        known = ", ".join(heads) or "none"
        raise ModelError(f"inference.head: {head!r}: {settings.name} has {known}")
    made: Built = builder.build(settings, loader, prepared, head)
    made.model.eval().requires_grad_(False)
    pair = one_pair(made.image_px, loader.max_tokens)
    return replace(made, count_flops=lambda: forward_flops(made.model, pair)), heads[head]


def heads_of(model: str) -> dict[str, tuple[str, ...]]:
    """A model's heads for inference, with the outputs that are their answers."""
    heads: dict[str, tuple[str, ...]] = plugins.declared(BUILDERS, "HEADS").get(model, {})
    return heads


def build_bare(settings: ModelSettings, loader: LoaderSettings, prepared: Path) -> Built:
    """The same for callers that need only sizes and tokenizer: random weights take no memory, since
    they are on torch's meta device."""
    import torch

    with nullcontext() if settings.checkpoint else torch.device("meta"):
        return build(settings, loader, prepared)


def _builder(settings: ModelSettings) -> Any:
    """The module that builds the model. Raises ModelError if it does not offer the settings."""
    for fault in model_faults(settings):
        raise ModelError(fault)
    return plugins.load(BUILDERS, settings.name)
