"""Sharded models: rank 0 has the weights, and the others take no memory for what they lack."""

import json
import subprocess
from pathlib import Path

import msgspec
import pytest
import torch
from training_jobs import make_spec, of_a_script

import warm
from feedrate.config.settings import LoaderSettings, ModelSettings
from feedrate.devices.launch import launch_command
from feedrate.models.build import build

SCRIPT = Path(__file__).with_name("empty_models.py")


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
    spec = msgspec.structs.replace(make_spec(count=2), launcher="torchrun")
    _, *words = (part for part in launch_command(spec, []) if part not in ("--module", "-m", "--"))
    ended = subprocess.run(
        [warm.python(), "-m", *words, str(SCRIPT), str(labelled), str(tmp_path)],
        env=of_a_script(),
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert (tmp_path / "memory.1.json").is_file(), ended.stderr[-6000:]
    first, second = (
        json.loads((tmp_path / f"memory.{rank}.json").read_text()) for rank in range(2)
    )
    assert first["built"] > 0.8 * first["size"]
    assert second["built"] < 0.2 * second["size"]
    assert second["sharded"] < first["sharded"] - 0.5 * first["size"]
