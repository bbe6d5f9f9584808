"""Random weights are drawn where the rank trains: the same values as a plain build draws there."""

from types import SimpleNamespace

import pytest
import torch

from feedrate.config.settings import BUILDERS, LoaderSettings, ModelSettings
from feedrate.core import plugins
from feedrate.devices.kinds import cpu, cuda, hpu
from feedrate.jobs.job_setup import place_of_weights
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


@pytest.mark.parametrize(
    ("kind", "train", "place"),
    [
        (cpu, {}, "cpu"),
        (cuda, {}, "cuda:1"),
        (cuda, {"strategy": "fsdp"}, "cpu"),
        (cuda, {"strategy": "fsdp", "cpu_offload": True}, "cpu"),
        (hpu, {}, "cpu"),
    ],
)
def test_where_weights_are_drawn(kind, train, place):
    adapter = kind.DeviceAdapter
    device = torch.device(adapter.kind, 1) if kind is not cpu else torch.device("cpu")
    rank = SimpleNamespace(device=device, draws_weights=adapter.draws_weights)
    assert place_of_weights(tiny_spec(train=train), rank) == torch.device(place)
