"""What a run was computed with must be what was asked for: nothing falls back unnoticed."""

import pytest
from record_builder import a_device

from feedrate.jobs.events import Computation, RankEvents
from feedrate.results.checks import ONLY_OF
from feedrate.results.conformity import Evidence, computation, equal_weights
from tiny_spec import tiny_spec


def evidence(spec, **ran):
    event = Computation(**{"rank": 0, "precision": "fp32", "optimizer": "AdamW", **ran})
    return Evidence(spec, None, a_device(), {0: RankEvents(computation=event)})


def found(train=None, hpu=None, kind="cpu", **ran):
    return computation(evidence(tiny_spec(train=train, hpu=hpu, kind=kind), **ran))


@pytest.mark.parametrize(
    ("asked", "ran"),
    [
        ({"precision": "fp8"}, {"precision": "bf16"}),
        ({"precision": "bf16_full"}, {"precision": "bf16"}),
        ({"precision": "fp32"}, {"precision": "bf16"}),
        ({"optimizer": "adamw_torch_fused"}, {"optimizer": "AdamW"}),
        ({"optimizer": "adamw_torch_loop"}, {"optimizer": "AdamW foreach"}),
        ({"optimizer": "adamw_torch_8bit"}, {"optimizer": "AdamW"}),
        ({"execution": "compiled"}, {}),
        ({}, {"compiled_graphs": 1}),
        ({"execution": "cuda_graphs"}, {"compiled_graphs": 2, "recorded_graphs": False}),
    ],
)
def test_another_path_than_asked_for_fails(asked, ran):
    assert not found(asked, **ran)[0]


@pytest.mark.parametrize(
    ("asked", "ran"),
    [
        ({"precision": "fp8"}, {"precision": "fp8"}),
        ({"optimizer": "adamw_torch_fused"}, {"optimizer": "AdamW fused"}),
        ({"optimizer": "adamw_torch_8bit"}, {"optimizer": "AdamW8bit"}),
        ({"optimizer": "adamw_torch_8bit"}, {"optimizer": "AdamW8bit", "compiled_graphs": 1}),
        ({"optimizer": "adamw_torch"}, {"optimizer": "AdamW foreach"}),
        ({"execution": "compiled"}, {"compiled_graphs": 1}),
        ({"execution": "cuda_graphs"}, {"compiled_graphs": 1, "recorded_graphs": True}),
        ({"execution": "cuda_graphs"}, {"compiled_graphs": 1}),
    ],
)
def test_what_was_asked_for_passes(asked, ran):
    assert found(asked, **ran)[0]


def test_on_gaudi_the_mode_says_whether_torch_compiles():
    assert not found(hpu={"mode": "compile"}, kind="hpu")[0]
    assert found(hpu={"mode": "compile"}, kind="hpu", compiled_graphs=1)[0]
    assert found(hpu={"mode": "compile"}, kind="cpu")[0], "other kinds ignore it"


@pytest.mark.parametrize(
    ("replayed", "missed", "valid"),
    [(8, 0, True), (None, None, True), (0, 0, False), (8, 1, False)],
)
def test_on_gaudi_every_pass_replays_the_graphs_asked_for(replayed, missed, valid):
    ran = {"kind": "hpu", "replayed_passes": replayed, "missed_passes": missed}
    assert found(hpu={"hpu_graphs_for_training": True}, **ran)[0] == valid
    assert found(**ran)[0], "nothing was asked for"


@pytest.mark.parametrize(
    ("asked", "ran", "valid"),
    [
        ({"precision": "bf16"}, {"precision": "bf16"}, True),
        ({"precision": "bf16"}, {}, False),
        ({"execution": "compiled"}, {"compiled_graphs": 1}, True),
        ({"execution": "compiled"}, {}, False),
        ({"execution": "cuda_graphs"}, {"compiled_graphs": 1, "recorded_graphs": False}, False),
        ({"optimizer": "adamw_torch_fused"}, {}, True),
    ],
)
def test_inference_is_held_to_the_same_without_an_optimizer(asked, ran, valid):
    spec = tiny_spec(task="inference", train=asked)
    assert computation(evidence(spec, **{"optimizer": "", **ran}))[0] == valid
    assert not {"computation", "fp32"} & ONLY_OF.keys()


def ranks(*weights):
    events = {
        r: RankEvents(computation=Computation(rank=r, weights=w)) for r, w in enumerate(weights)
    }
    return Evidence(tiny_spec(count=len(weights)), None, a_device(), events)


def test_ranks_that_learned_apart_are_found():
    assert equal_weights(ranks("a", "a", "a"))[0]
    assert equal_weights(ranks("", ""))[0], "each holds a part"
    assert not equal_weights(ranks("a", "a", "b"))[0]
