"""Random weights are drawn where the rank trains: the same values as a plain build draws there."""

from types import SimpleNamespace

import pytest
import torch

from feedrate.config.settings import BUILDERS, LoaderSettings, ModelSettings
from feedrate.core import plugins
from feedrate.devices.kinds import cpu, cuda, hpu
from feedrate.jobs.job_setup import place_of_weights
from feedrate.jobs.train import build_for_training
from feedrate.models.build import build
from tiny_spec import tiny_spec

LOADER = LoaderSettings(max_tokens=16)


@pytest.mark.parametrize("name", plugins.names(BUILDERS))
def test_drawn_on_the_cpu_a_model_is_what_it_always_was(labelled, name):
    """Bit for bit, with the buffers that no checkpoint holds and with tied weights."""
    settings, models = ModelSettings(name=name, size="tiny"), []
    for make in (plugins.load(BUILDERS, name).build, build):
        torch.manual_seed(7)
        models.append(make(settings, LOADER, labelled).model)
    plain, placed = ({**dict(m.named_parameters()), **dict(m.named_buffers())} for m in models)
    assert plain.keys() == placed.keys()
    assert all(torch.equal(value, placed[key]) for key, value in plain.items())


@pytest.mark.parametrize("name", plugins.names(BUILDERS))
def test_every_tensor_is_made_on_the_device_that_is_named(labelled, name):
    """The meta device replaces a card: a constructor that reads a value would fail here."""
    settings = ModelSettings(name=name, size="tiny")
    model = build(settings, LOADER, labelled, on="meta").model
    tensors = [*model.parameters(), *model.buffers()]
    assert {tensor.device.type for tensor in tensors} == {"meta"}
    drawn = build(settings, LOADER, labelled).model
    shapes = [(name, p.shape, p.requires_grad) for name, p in drawn.named_parameters()]
    assert shapes == [(name, p.shape, p.requires_grad) for name, p in model.named_parameters()]


FSDP = {"strategy": "fsdp"}
CLOSE_GIB = 4 * 3_491_969 / 2**30 / 0.9  # of the tiny BridgeTower's weights, which fit just so


def rank_of(adapter, device, capacity_gib):
    return SimpleNamespace(
        device=torch.device(device),
        draws_weights=adapter.draws_weights,
        capacity_gib=lambda: capacity_gib,
        release=lambda: None,
    )


@pytest.mark.parametrize(
    ("kind", "device", "train", "capacity_gib", "place"),
    [
        (cpu, "cpu", {}, 8.0, "cpu"),
        (cpu, "cpu", FSDP, 8.0, "cpu"),
        (cuda, "cuda:1", {}, 80.0, "cuda:1"),
        (cuda, "cuda:1", FSDP, 80.0, "cuda:1"),
        (cuda, "cuda:1", {**FSDP, "cpu_offload": True}, CLOSE_GIB * 1.001, "cuda:1"),
        (cuda, "cuda:1", FSDP, CLOSE_GIB * 0.999, "cpu"),
        (cuda, "cuda:1", FSDP, None, "cpu"),
        (hpu, "hpu", {}, 96.0, "cpu"),
        (hpu, "hpu", FSDP, 96.0, "cpu"),
    ],
)
def test_where_weights_are_drawn(labelled, kind, device, train, capacity_gib, place):
    rank = rank_of(kind.DeviceAdapter, device, capacity_gib)
    assert place_of_weights(tiny_spec(train=train), rank, labelled) == torch.device(place)


def test_what_drew_the_weights_is_read_from_them(labelled):
    """So a place that was not planned shows; a sharded model leaves the device for the host."""
    roomy, tight = (rank_of(cuda.DeviceAdapter, "meta", gib) for gib in (80.0, CLOSE_GIB / 2))
    alone, shared = tiny_spec(), tiny_spec(count=2, train=FSDP)
    assert build_for_training(alone, roomy, labelled, 0).made_on == "meta"
    assert build_for_training(shared, tight, labelled, 0).made_on == "cpu"
    assert build_for_training(shared, roomy, labelled, 1).made_on is None  # rank 0 draws for all
    with pytest.raises(NotImplementedError, match="no data"):  # nothing to move: never a guess
        build_for_training(shared, roomy, labelled, 0)
