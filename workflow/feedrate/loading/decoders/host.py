"""Fast decoding on the host, in uint8 throughout.

simplejpeg decodes with libjpeg-turbo, grey files to one channel, and Pillow decodes other files.
torch resizes like Pillow except for rounding (mean absolute difference 0.003 of 255).
"""

from pathlib import Path

import numpy as np
import simplejpeg
import torch
from PIL import Image

from feedrate.loading.decoders import Source
from feedrate.loading.pixels import Size, crop_levels, decoding, fetch
from feedrate.loading.stages import span

LEVEL = "host"

_COLOURS = {"Gray": "GRAY", "YCbCr": "RGB", "RGB": "RGB"}  # Pillow decodes CMYK, YCCK


def read(source: Source, row: int) -> torch.Tensor:
    """A row's crop: uint8 (1 or 3, side, side). Raises DataError, which names the file."""
    path = source.paths[row]
    with decoding(path):
        data = fetch(path)
    return crop_of(path, data, source.side_px, scaled=source.loader.scaled_decode)


def crop_of(path: Path, data: bytes, side_px: int, *, scaled: bool = False) -> torch.Tensor:
    """`read` of a file's bytes; `scaled`: the decoder may shrink by a power of two first."""
    with span("decode"):
        levels, size = decode_levels(path, data, side_px if scaled else None)
    with span("resize"):
        return crop_levels(levels, size, side_px)


def decode_levels(
    path: Path, data: bytes, shrink_to_px: int | None = None
) -> tuple[torch.Tensor, Size]:
    """A picture from its file's bytes, uint8 (1 or 3, h, w), and its size in the file. The decoder
    halves it while it stays at least `shrink_to_px` large. Raises DataError."""
    try:
        height, width, colours, _ = simplejpeg.decode_jpeg_header(data)
        options = {}
        if shrink_to_px is not None:
            # libjpeg-turbo's other scales are slower than a full decode.
            enough = (n for n in (1, 2, 4, 8) if min(height, width) // n >= shrink_to_px)
            factor = max(enough, default=1)
            options = {"min_height": -(-height // factor), "min_width": -(-width // factor)}
        levels = simplejpeg.decode_jpeg(data, _COLOURS[colours], **options)
    except (ValueError, KeyError):
        with decoding(path), Image.open(path) as image:  # fails for damaged files
            levels = np.array(image if image.mode == "L" else image.convert("RGB"))
        height, width = levels.shape[:2]
        levels = levels.reshape(height, width, -1)
    return torch.from_numpy(levels).permute(2, 0, 1), (height, width)
