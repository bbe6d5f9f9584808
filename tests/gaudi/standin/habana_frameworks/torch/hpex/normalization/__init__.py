"""Fused norms, not fused."""

from collections.abc import Iterable

import torch


class FusedClipNorm:
    """Clips a model's gradients; the norm has one element, as the real one's."""

    def __init__(self, parameters: Iterable[torch.nn.Parameter], max_norm: float) -> None:
        self.max_norm = max_norm

    def clip_norm(self, parameters: Iterable[torch.nn.Parameter]) -> torch.Tensor:
        return torch.nn.utils.clip_grad_norm_(parameters, self.max_norm).reshape(1)
