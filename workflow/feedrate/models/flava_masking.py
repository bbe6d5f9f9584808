"""What FLAVA hides from itself: words, patches, and sometimes the right text.

Everything happens on the batch's device and follows from torch's generator there.
"""

from dataclasses import dataclass

import torch

IGNORED = -100
"""Label of a place that takes no part in a loss."""
WORD_SHARE = 0.15
"""BERT's; of these 80% become the mask token, 10% another token, 10% stay."""
PATCH_SHARE = 75 / 196
"""BEiT's 75 patches of 14 x 14; here any patches, not blocks of neighbours."""
MISMATCH_SHARE = 0.1
"""Pairs whose text is another row's (TorchMultimodal's `itm_probability`)."""


@dataclass(frozen=True, kw_only=True)
class Masking:
    """Masks for one tokenizer."""

    mask_id: int
    special_ids: tuple[int, ...]
    """Tokens that are never hidden."""
    mismatch_share: float = MISMATCH_SHARE

    @staticmethod
    def patch_count(patches: int) -> int:
        """Patches that are hidden of an image's."""
        return max(1, round(PATCH_SHARE * patches))

    @staticmethod
    def token_count(tokens: int) -> int:
        """Words that are hidden of a text of `tokens`; at least one, for a loss needs one."""
        return max(1, round(WORD_SHARE * tokens))

    def mismatch(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Texts and masks (batch, tokens), some of them the next row's; and 1 where they match."""
        rows = len(input_ids)
        device = input_ids.device
        strangers = torch.rand(rows, device=device) < self.mismatch_share
        strangers[0] = False  # the losses of pairs need one
        take = (torch.arange(rows, device=device) + strangers) % rows
        return input_ids[take], attention_mask[take], (~strangers).long()

    def mask_tokens(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Tokens (batch, tokens) with some hidden; and the labels: these, else IGNORED."""
        real = attention_mask.bool()
        order = torch.rand(input_ids.shape, device=input_ids.device)
        for special in self.special_ids:
            order = order.masked_fill(input_ids == special, 1.0)
        # Places in the order of their draw, those that must stay last: the first ones are hidden.
        place = order.masked_fill(~real, 2.0).argsort(dim=1).argsort(dim=1)
        wanted = (real.sum(dim=1, keepdim=True) * WORD_SHARE).round().clamp(min=1)
        hidden = place < wanted
        labels = input_ids.masked_fill(~hidden, IGNORED)
        draw = torch.rand(input_ids.shape, device=input_ids.device)
        other = input_ids.flatten()[torch.randperm(input_ids.numel(), device=input_ids.device)]
        shown = torch.where(hidden & (draw < 0.9), other.view_as(input_ids), input_ids)
        return shown.masked_fill(hidden & (draw < 0.8), self.mask_id), labels

    def mask_patches(self, rows: int, patches: int, like: torch.Tensor) -> torch.Tensor:
        """True (rows, patches) at as many hidden patches of each row, on the device of `like`."""
        draw = torch.rand(rows, patches, device=like.device)
        place = draw.argsort(dim=1).argsort(dim=1)
        return place < self.patch_count(patches)
