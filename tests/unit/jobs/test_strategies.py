"""Two processes on gloo share the work in several ways: same losses, same weights, no pretence."""

import json
from collections import Counter
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch.distributed.fsdp import BackwardPrefetch
from training_jobs import make_spec, named, read_events, run_ranks
from transformers import set_seed
from transformers.models.flava.modeling_flava import FlavaLayer

from feedrate.config.settings import LoaderSettings, ModelSettings
from feedrate.devices.base import UnsupportedError
from feedrate.jobs.strategy import check_strategy, sharding
from feedrate.models.build import build

WAYS = {
    "ddp": {},
    "ddp-tuned": {"ddp_bucket_mb": 1, "ddp_static_graph": True, "ddp_bucket_view": True},
    "fsdp": {"strategy": "fsdp"},
    "fsdp-ac-offload": {"strategy": "fsdp", "checkpointing": True, "cpu_offload": True},
    "fsdp1": {"strategy": "fsdp", "limit_all_gathers": True},
    "fsdp1-ac-unlimited": {"strategy": "fsdp", "limit_all_gathers": False, "checkpointing": True},
}
FIRST = [way for way in WAYS if way.startswith("fsdp1")]
"""The ways of PyTorch's first FSDP."""
DDP = {"ddp_bucket_mb": 25, "ddp_static_graph": False, "ddp_bucket_view": False}


CHANGES = [("ddp", "ddp"), ("ddp", "fsdp"), ("fsdp", "ddp")]
"""The strategy that saved weights, and the one that goes on from them."""
SAVED = "fsdp-ac-offload"


@pytest.fixture(scope="module")
def runs(labelled, tmp_path_factory):
    """Folders of runs of FLAVA: by each strategy, and by another one from saved weights. The one
    that offloads keeps checkpoints."""
    folder = tmp_path_factory.mktemp("flava")

    def wanted(name, *, checkpointing=False, checkpoint=None, **train):
        model = {"checkpointing": checkpointing, "checkpoint": checkpoint}
        steps = 2 if checkpoint else 4
        protocol = {"steps": steps, "save_checkpoints": name == SAVED}
        return {"out": str(folder / name), "model": model, "train": train, "protocol": protocol}

    runs = {way: wanted(way, **choice) for way, choice in WAYS.items()}
    for before, after in CHANGES:
        saved = str(folder / before / "model")
        name = f"{before}-{after}"
        runs[before, after] = wanted(name, checkpoint=saved, strategy=after)
    errors = run_ranks("strategies.py", labelled, json.dumps([*runs.values()]), timeout=500)
    folders = {key: Path(run["out"]) for key, run in runs.items()}
    for out in folders.values():
        assert (out / "model/model.safetensors").is_file(), errors[-6000:]
    return folders


@pytest.fixture(scope="module")
def flava(runs):
    """The folder of a run by each strategy."""
    return {way: runs[way] for way in WAYS}


def losses(folder):
    return [
        [event["loss"] for event in named(read_events(folder / name), "step")]
        for name in ("events.jsonl", "events.rank1.jsonl")
    ]


@pytest.mark.parametrize("way", [way for way in WAYS if way != "ddp"])
def test_losses_are_those_of_ddp(flava, way):
    expected, found = losses(flava["ddp"]), losses(flava[way])
    assert len(expected[0]) == 4
    assert expected[0] != expected[1]
    for ours, theirs in zip(found, expected, strict=True):
        assert ours == pytest.approx(theirs, abs=2e-5)
    assert abs(expected[0][0] - expected[0][-1]) > 1e-3  # the tolerance hides no step


@pytest.mark.parametrize(
    ("way", "name", "sharded", "checkpointed", "offloaded"),
    [
        ("ddp", "ddp", 0, 0, 0),
        ("ddp-tuned", "ddp", 0, 0, 0),
        ("fsdp", "fsdp", 10, 0, 0),
        ("fsdp-ac-offload", "fsdp", 10, 10, 10),
        ("fsdp1", "fsdp", 10, 0, 0),
        ("fsdp1-ac-unlimited", "fsdp", 10, 10, 0),
    ],
)
def test_what_ran_is_told_from_the_model_itself(flava, way, name, sharded, checkpointed, offloaded):
    for file in ("events.jsonl", "events.rank1.jsonl"):
        (event,) = named(read_events(flava[way] / file), "strategy")
        layers = ("layers", "sharded_layers", "checkpointed_layers", "offloaded_layers")
        assert [event[key] for key in layers] == [10, sharded, checkpointed, offloaded]
        assert event["name"] == name
        assert event["ddp"] == (DDP | WAYS[way] if name == "ddp" else None)


def test_the_first_fsdp_shards_the_encoders_as_the_source_does(flava):
    found = {way: int((flava[way] / "sharded_encoders").read_text()) for way in WAYS}
    assert found == {way: 3 * (way in FIRST) for way in WAYS}


def test_a_saved_model_is_the_same_and_loads_whatever_the_strategy(flava, labelled):
    weights = {way: load_file(folder / "model/model.safetensors") for way, folder in flava.items()}
    for way in WAYS:
        assert weights[way].keys() >= weights["ddp"].keys()
        for name, tensor in weights["ddp"].items():
            assert weights[way][name].shape == tensor.shape, name
            assert torch.allclose(weights[way][name], tensor, atol=2e-4), name
    settings = ModelSettings(name="flava", size="tiny", checkpoint=str(flava["fsdp"] / "model"))
    loaded = build(settings, LoaderSettings(max_tokens=8), labelled)
    state = loaded.model.state_dict()
    places = Counter(tensor.data_ptr() for tensor in state.values())
    shared = {name for name, tensor in state.items() if places[tensor.data_ptr()] > 1}
    # What is sharded is saved under each of its names, and nothing else is added.
    assert weights["fsdp"].keys() - weights["ddp"].keys() <= shared
    assert all(torch.equal(state[name], tensor) for name, tensor in weights["fsdp"].items())


def test_training_starts_from_the_same_weights_whatever_the_strategy(runs, labelled):
    """Those that a plain build draws from the seed, or the checkpoint's; compared bit by bit."""
    spec = make_spec(model={"name": "flava"})
    set_seed(spec.seed)
    drawn = build(spec.settings.model, spec.settings.loader, labelled).model.state_dict()
    ends = {way: load_file(runs[way] / "model/model.safetensors") for way in ("ddp", "fsdp")}
    expected = dict.fromkeys(WAYS, drawn) | {change: ends[change[0]] for change in CHANGES}
    for run, weights in expected.items():
        start = load_file(runs[run] / "start/model.safetensors")
        shared = start.keys() & weights.keys()
        assert len(shared) > 100
        assert all(torch.equal(start[name], weights[name]) for name in shared), run
    assert any(not torch.equal(drawn[name], value) for name, value in ends["ddp"].items())


def test_training_goes_on_by_another_strategy_from_saved_weights(runs):
    """Sharded from whole and whole from sharded, and each as if the strategy had not changed."""
    steps = {change: losses(runs[change]) for change in CHANGES}
    expected = steps["ddp", "ddp"]
    assert expected[0][0] < losses(runs["ddp"])[0][0] - 1e-3  # it starts where training ended
    for way in CHANGES[1:]:
        for ours, theirs in zip(steps[way], expected, strict=True):
            assert ours == pytest.approx(theirs, abs=2e-3)


def test_a_sharded_run_keeps_checkpoints(runs):
    saved = (runs[SAVED] / "trainer").glob("checkpoint-*")
    assert {path.name for path in saved} == {"checkpoint-2", "checkpoint-4"}


@pytest.mark.parametrize(
    ("kind", "count", "train", "message"),
    [
        ("cpu", 1, {"strategy": "fsdp"}, "needs several devices, or train.cpu_offload"),
        ("cuda", 2, {"limit_all_gathers": False}, "only strategy fsdp has it, not ddp"),
        ("cuda", 2, {"cpu_offload": True}, "train.cpu_offload: only strategy fsdp has it"),
        (
            "cuda",
            2,
            {"strategy": "fsdp", "cpu_offload": True, "limit_all_gathers": True},
            "train.cpu_offload: true needs PyTorch's second FSDP",
        ),
    ],
)
def test_what_a_device_cannot_do_is_refused(kind, count, train, message):
    with pytest.raises(UnsupportedError, match=message):
        check_strategy(make_spec(kind=kind, count=count, train=train))


@pytest.mark.parametrize(
    ("limit", "version", "limits"), [(None, 2, True), (True, 1, True), (False, 1, False)]
)
def test_limited_gathers_are_a_choice_of_the_first_fsdp(monkeypatch, limit, version, limits):
    monkeypatch.setenv("FSDP_CPU_RAM_EFFICIENT_LOADING", "false")  # accelerate sets it
    train = {"strategy": "fsdp", "limit_all_gathers": limit}
    plugin = sharding(make_spec(kind="cuda", count=8, train=train), (FlavaLayer,))
    assert (plugin.fsdp_version, plugin.limit_all_gathers) == (version, limits)
    # The second FSDP always gathers the next weights while it computes; the source's first one too.
    assert plugin.backward_prefetch == (BackwardPrefetch.BACKWARD_PRE if version == 1 else None)
    assert plugin.transformer_cls_names_to_wrap == ["FlavaLayer"]
    assert sharding(make_spec(kind="cuda", count=8), (FlavaLayer,)) is None  # ddp shards nothing
