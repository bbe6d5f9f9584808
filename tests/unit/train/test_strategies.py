"""Two processes on gloo share the work in several ways: same losses, same weights, no pretence."""

import os
import subprocess
from pathlib import Path

import msgspec
import pytest
import torch
from safetensors.torch import load_file
from training_jobs import make_spec, named, read_events
from transformers.models.flava.modeling_flava import FlavaLayer

from feedrate.config.settings import LoaderSettings, ModelSettings, TrainSettings
from feedrate.devices.base import UnsupportedError
from feedrate.devices.launch import launch_command
from feedrate.models.build import build
from feedrate.models.layers import give_shapes
from feedrate.train.strategy import check_strategy, sharding

SCRIPT = Path(__file__).with_name("strategies.py")


def run(prepared, out, name, strategy, checkpointing):
    out.mkdir()
    command = launch_command(make_spec(count=2), [])
    command = [part for part in command if part not in ("--module", "-m", "--")]
    command.insert(1, "-m")
    arguments = [str(prepared), str(out), name, strategy, str(checkpointing).lower()]
    ended = subprocess.run(
        [*command, str(SCRIPT), *arguments],
        env={**os.environ, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"},
        capture_output=True,
        text=True,
        timeout=170,
        check=False,
    )
    assert (out / "model/model.safetensors").is_file(), ended.stderr[-6000:]
    return out


@pytest.fixture(scope="module")
def flava(labelled, tmp_path_factory):
    """The folder of a run of FLAVA by each strategy."""
    folder = tmp_path_factory.mktemp("flava")
    ways = {"ddp": ("ddp", False), "fsdp": ("fsdp", False), "fsdp-ac": ("fsdp", True)}
    return {way: run(labelled, folder / way, "flava", *choice) for way, choice in ways.items()}


def losses(folder):
    return [
        [event["loss"] for event in named(read_events(folder / name), "step")]
        for name in ("events.jsonl", "events.rank1.jsonl")
    ]


@pytest.mark.parametrize("way", ["fsdp", "fsdp-ac"])
def test_losses_are_those_of_ddp(flava, way):
    expected, found = losses(flava["ddp"]), losses(flava[way])
    assert len(expected[0]) == 4
    assert expected[0] != expected[1]
    for ours, theirs in zip(found, expected, strict=True):
        assert ours == pytest.approx(theirs, abs=2e-5)
    assert abs(expected[0][0] - expected[0][-1]) > 1e-3  # the tolerance hides no step


@pytest.mark.parametrize(
    ("way", "name", "sharded", "checkpointed"),
    [("ddp", "ddp", 0, 0), ("fsdp", "fsdp", 10, 0), ("fsdp-ac", "fsdp", 10, 10)],
)
def test_what_ran_is_told_from_the_model_itself(flava, way, name, sharded, checkpointed):
    for file in ("events.jsonl", "events.rank1.jsonl"):
        (told,) = named(read_events(flava[way] / file), "strategy")
        assert told["name"] == name
        assert told["layers"] == 10
        assert told["sharded_layers"] == sharded
        assert told["checkpointed_layers"] == checkpointed


def test_a_saved_model_is_the_same_and_loads_whatever_the_strategy(flava, labelled):
    weights = {way: load_file(folder / "model/model.safetensors") for way, folder in flava.items()}
    for way in ("fsdp", "fsdp-ac"):
        assert weights[way].keys() >= weights["ddp"].keys()  # shared biases bear two names there
        for name, tensor in weights["ddp"].items():
            assert weights[way][name].shape == tensor.shape, name
            assert torch.allclose(weights[way][name], tensor, atol=2e-4), name
    settings = ModelSettings(name="flava", size="tiny", checkpoint=str(flava["fsdp"] / "model"))
    loaded = build(settings, LoaderSettings(max_tokens=8), labelled)
    state = loaded.model.state_dict()
    assert all(torch.equal(state[name], tensor) for name, tensor in weights["fsdp"].items())


def test_parameters_without_a_dimension_get_one(labelled):
    settings = ModelSettings(name="flava", size="tiny")
    model = build(settings, LoaderSettings(max_tokens=8), labelled).model
    (name,) = give_shapes(model)
    assert name.endswith("logit_scale")
    assert dict(model.named_parameters())[name].shape == (1,)
    assert give_shapes(model) == []


@pytest.mark.parametrize(
    ("kind", "count", "train", "message"),
    [
        ("cpu", 1, {"strategy": "fsdp"}, "needs several devices; the job has 1"),
        ("hpu", 8, {"strategy": "fsdp"}, "not available yet on hpu"),
        ("cpu", 2, {"strategy": "fsdp", "limit_all_gathers": True}, "does not run on a cpu"),
        ("cuda", 2, {"limit_all_gathers": False}, "a choice of fsdp, not of ddp"),
    ],
)
def test_what_a_device_cannot_do_is_refused(kind, count, train, message):
    spec = make_spec(kind=kind, count=count)
    settings = msgspec.structs.replace(spec.settings, train=TrainSettings(**train))
    with pytest.raises(UnsupportedError, match=message):
        check_strategy(msgspec.structs.replace(spec, settings=settings))


@pytest.mark.parametrize(
    ("limit", "version", "limits"), [(None, 2, True), (True, 1, True), (False, 1, False)]
)
def test_limited_gathers_are_a_choice_of_the_first_fsdp(monkeypatch, limit, version, limits):
    monkeypatch.setenv("FSDP_CPU_RAM_EFFICIENT_LOADING", "false")  # accelerate sets it
    spec = make_spec(kind="cuda", count=8)
    train = TrainSettings(strategy="fsdp", limit_all_gathers=limit)
    settings = msgspec.structs.replace(spec.settings, train=train)
    plugin = sharding(msgspec.structs.replace(spec, settings=settings), (FlavaLayer,))
    assert (plugin.fsdp_version, plugin.limit_all_gathers) == (version, limits)
    assert plugin.transformer_cls_names_to_wrap == ["FlavaLayer"]
    assert sharding(spec, (FlavaLayer,)) is None  # ddp shards nothing
