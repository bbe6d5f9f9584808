"""Operations of a step that make the host wait for the device, counted where they are called."""

from collections import Counter
from types import SimpleNamespace

import pytest
import torch
from model_batches import batch
from torch.utils._python_dispatch import TorchDispatchMode
from transformers.masking_utils import create_bidirectional_mask

READS = {"_local_scalar_dense", "equal", "masked_select", "nonzero", "unique_dim", "_unique2"}
"""Operations whose answer the host needs: a value, or a number of places."""


class Waits(TorchDispatchMode):
    """Counts them. An index that is a mask has as many places as the mask has ones."""

    def __init__(self):
        super().__init__()
        self.counts = Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func._schema.name.removeprefix("aten::")
        if name in READS:
            self.counts[name] += 1
        elif name.startswith(("index", "_index")) and isinstance(args[1], list | tuple):
            masked = any(part is not None and part.dtype == torch.bool for part in args[1])
            # With a single value this is a masked fill, which needs no number.
            fills = len(args) > 2 and args[2].numel() == 1
            self.counts["mask as index"] += masked and not fills
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize(
    ("name", "settings", "forward", "backward"),
    [
        ("bridgetower", {}, 0, 0),
        ("bridgetower", {"attention": "sdpa"}, 0, 0),
        ("clip", {}, 0, 0),
        ("clip", {"attention": "sdpa"}, 0, 0),
        ("swin", {}, 0, 0),
        ("vit", {}, 0, 0),
        ("vit", {"attention": "sdpa"}, 0, 0),
        # The library computes FLAVA's losses at the hidden places and of matching pairs only.
        ("flava", {}, 11, 5),
        ("flava", {"attention": "sdpa", "losses": "all"}, 15, 7),
    ],
)
@pytest.mark.parametrize("padded", [True, False])
def test_a_step_reads_nothing_from_the_device(make, name, settings, forward, backward, padded):
    """docs/measurement.md tells these numbers. If a release of the library raises one, look for a
    way to avoid it; if one falls, write the new one."""
    built = make(name, **settings)
    inputs = batch(built, padded=padded)
    with Waits() as waits:
        loss = built.model.train()(**inputs)["loss"]
        assert waits.counts.total() == forward, waits.counts
        loss.backward()
    assert waits.counts.total() == forward + backward, waits.counts


@pytest.mark.parametrize("name", ["bridgetower", "clip", "flava"])
@pytest.mark.parametrize("padded", [True, False])
def test_the_masks_that_are_always_made_change_no_loss(make, monkeypatch, name, padded):
    from transformers import masking_utils

    losses = []
    for functions in (masking_utils.ALL_MASK_ATTENTION_FUNCTIONS._local_mapping, {}):
        masks = masking_utils.ALL_MASK_ATTENTION_FUNCTIONS
        monkeypatch.setattr(masks, "_local_mapping", functions)
        built = make(name)
        inputs = batch(built, padded=padded)
        torch.manual_seed(3)
        losses.append(built.model.train()(**inputs)["loss"])
    assert torch.equal(*losses)


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_a_mask_of_padding_serves_any_number_of_queries(attention):
    """transformers 5.12 to 5.19 give the mask of BridgeTower's image to attention of its texts."""
    config = SimpleNamespace(_attn_implementation=attention)
    image, ones = torch.zeros(2, 65, 8), torch.ones(2, 65, dtype=torch.long)
    mask = create_bidirectional_mask(config=config, inputs_embeds=image, attention_mask=ones)
    assert mask.shape == (2, 1, 1, 65)
