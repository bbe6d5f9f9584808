"""Sharded models: rank 0 has the weights, and the others take no memory for what they lack."""

import json

import pytest
import torch
from training_jobs import run_ranks

from feedrate.config.settings import LoaderSettings, ModelSettings
from feedrate.models.build import build


@pytest.mark.parametrize("name", ["bridgetower", "clip", "flava", "vit"])
def test_an_empty_model_differs_in_the_values_of_its_weights_only(labelled, name):
    settings, loader = ModelSettings(name=name, size="tiny"), LoaderSettings(max_tokens=8)
    whole, empty = (build(settings, loader, labelled, empty=e).model for e in (False, True))
    assert [(n, p.shape, p.requires_grad) for n, p in whole.named_parameters()] == [
        (n, p.shape, p.requires_grad) for n, p in empty.named_parameters()
    ]
    assert whole.state_dict().keys() == empty.state_dict().keys()
    kept = dict(empty.named_buffers())
    for buffer, value in whole.named_buffers():
        assert torch.equal(value, kept[buffer]), buffer


def test_a_host_holds_the_weights_once(labelled, tmp_path):
    """Measured: the peaks of two processes. The shards are in host memory too, on a CPU."""
    errors = run_ranks("empty_models.py", labelled, tmp_path, timeout=200)
    assert (tmp_path / "memory.1.json").is_file(), errors[-6000:]
    first, second = (
        json.loads((tmp_path / f"memory.{rank}.json").read_text()) for rank in range(2)
    )
    assert first["built"] > 0.8 * first["size"]
    assert second["built"] < 0.2 * second["size"]
    assert second["sharded"] < first["sharded"] - 0.5 * first["size"]
