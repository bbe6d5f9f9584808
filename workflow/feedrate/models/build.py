"""The registry of models, and what a training job needs to know of one."""

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from feedrate.config.settings import LoaderSettings, ModelSettings

BUILDERS = {"bridgetower": "feedrate.models.bridgetower"}
"""Name in `model.name` to the module whose `build` makes it; add a model here."""


class ModelError(Exception):
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
    attention: str
    """The attention that really runs."""
    count_flops: Callable[[], float]
    """FLOPs of a sample, forward and backward; takes 0.3 s (tiny) to 2 s (large)."""
    other_outputs: tuple[str, ...]
    """Outputs that evaluation has no use for: all but loss, text and image embeddings."""

    @property
    def parameters(self) -> int:
        """Parameters, trained or not."""
        return sum(p.numel() for p in self.model.parameters())


def build(settings: ModelSettings, loader: LoaderSettings, prepared: Path) -> Built:
    """Make the model that `settings` name, with random weights or a checkpoint's.

    `prepared` is the dataset's folder, whose tokenizer goes with random weights. Random weights
    come from torch's generator as it stands. Raises ModelError for a name, size or checkpoint
    that cannot be had.
    """
    if settings.name not in BUILDERS:
        raise ModelError(f"model.name: {settings.name!r} is not one of {', '.join(BUILDERS)}")
    made: Built = importlib.import_module(BUILDERS[settings.name]).build(settings, loader, prepared)
    return made
