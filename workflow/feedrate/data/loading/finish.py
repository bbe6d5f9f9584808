"""The last step to the model's pixels, in one place for all levels and kinds of device.

It runs where the batch is: on the device, or in the loader where float32 is transferred.
"""

from typing import Any

import torch

from feedrate.data.loading.augment import recolour
from feedrate.data.loading.pixels import LEVELS, normalise

Statistics = tuple[float, float, float]
Batch = dict[str, Any]


class Finish:
    """Makes float32 pixels of uint8 ones, with the colours that were drawn, normalised."""

    def __init__(self, mean: Statistics, std: Statistics) -> None:
        self._mean = torch.tensor(mean).view(3, 1, 1)
        self._std = torch.tensor(std).view(3, 1, 1)
        self._scale = 1 / (LEVELS * self._std)
        self._shift = -self._mean / self._std

    def pixels(self, pixels: torch.Tensor, colour: torch.Tensor | None = None) -> torch.Tensor:
        """(n, 3, h, w), uint8 or float32 in 0 to 1, to normalised float32; `colour` is (n, 3)."""
        if self._mean.device != pixels.device:
            parts = (self._mean, self._std, self._scale, self._shift)
            self._mean, self._std, self._scale, self._shift = (p.to(pixels.device) for p in parts)
        if colour is not None:
            scale = LEVELS if pixels.dtype == torch.uint8 else 1
            pixels = recolour(pixels.float() / scale, colour)
        if pixels.dtype == torch.uint8:
            return torch.addcmul(self._shift, pixels.float(), self._scale)
        return normalise(pixels, self._mean, self._std)

    def __call__(self, batch: Batch) -> Batch:
        """A batch as the model takes it; one that is finished stays as it is."""
        pixels = batch.get("pixel_values")
        if pixels is None or pixels.dtype != torch.uint8:
            return batch
        rest = {name: value for name, value in batch.items() if name != "colour"}
        return rest | {"pixel_values": self.pixels(pixels, batch.get("colour"))}
