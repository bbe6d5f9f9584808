"""Decoding as in the published script: by Pillow, to float32 at full size."""

import torch

from feedrate.loading.decoders import Source
from feedrate.loading.pixels import crop, decode
from feedrate.loading.stages import span

LEVEL = "reference"
TRANSFER = "float32"
FETCH = "sample"


def read(source: Source, row: int) -> torch.Tensor:
    """A row's crop: float32 (3, side, side) in 0 to 1."""
    picture = decode(source.paths[row])
    with span("resize"):
        return crop(picture, source.side_px)
