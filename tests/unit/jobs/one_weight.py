"""A model of one weight and the rows on which it trains, for tests of the Trainer."""

from collections.abc import Mapping, Sequence

import torch
from torch import nn


class OneWeight(nn.Module):
    """Its loss is the weight times the mean of `x`."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))

    def forward(self, x: torch.Tensor, return_loss: bool = True) -> dict[str, torch.Tensor]:
        return {"loss": (self.weight * x.mean()).sum()}


class Rows:
    """400 numbers from 0 to 1."""

    @staticmethod
    def finish(batch: Mapping[str, torch.Tensor]) -> Mapping[str, torch.Tensor]:
        return batch

    def __len__(self) -> int:
        return 400

    def __getitems__(self, indices: Sequence[int]) -> list[dict[str, torch.Tensor]]:
        return [{"x": torch.full((1,), index / len(self))} for index in indices]
