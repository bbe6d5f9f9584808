"""Scores of a model, against cases worked out by hand, and the job that evaluates."""

import itertools
import json
import subprocess

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from training_jobs import (
    in_warm_processes,
    make_spec,
    named,
    of_a_script,
    read_events,
    train_here,
    write_spec,
)

from feedrate.config.workflow import GeneratedExamples
from feedrate.data.winoground import fetch_winoground
from feedrate.devices.kinds.cpu import DeviceAdapter
from feedrate.devices.launch import launch_command
from feedrate.jobs import evaluation
from feedrate.jobs.evaluation import WINOGROUND_CHANCE, choice_hits, nearest_hits, winoground_hits
from feedrate.jobs.worker import Options

UNIT = np.eye(4, dtype=np.float32)
EACH = np.arange(4)


def test_the_nearest_target_is_right_if_it_is_of_the_querys_group():
    assert nearest_hits(UNIT, UNIT, EACH, EACH).all()
    assert not nearest_hits(UNIT, np.roll(UNIT, 1, axis=0), EACH, EACH).any()
    pairs = np.array([0, 0, 1, 1])
    assert nearest_hits(UNIT, UNIT[[1, 0, 3, 2]], pairs, pairs).all(), "any caption of an image"


@pytest.mark.parametrize("value", [1.0, np.nan])
def test_equal_scores_and_what_is_no_number_are_wrong(value):
    same = np.full((3, 2), value, dtype=np.float32)
    assert not nearest_hits(same, same, np.arange(3), np.arange(3)).any()


@given(rows=st.integers(1, 40), chunk=st.integers(1, 50), seed=st.integers(0, 9))
def test_comparing_in_parts_changes_nothing(rows, chunk, seed):
    rng = np.random.default_rng(seed)
    queries, targets = rng.normal(size=(2, rows, 5)).astype(np.float32)
    groups = rng.integers(0, 5, size=rows)
    first = groups[(queries @ targets.T).argmax(1)] == groups
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(evaluation, "_ROWS", chunk)
        assert (nearest_hits(queries, targets, groups, groups) == first).all()


def test_choices_by_hand():
    offered = np.array(
        [
            [0.1, 0.9, 0.2, 0.3, 0.4],  # right
            [0.9, 0.1, 0.2, 0.3, 0.4],  # wrong
            [0.9, 0.9, 0.2, 0.3, 0.4],  # tied: wrong
            [0.0, np.nan, 0.0, 0.0, 0.0],  # no number: wrong
            [np.nan, 0.9, 0.2, 0.3, 0.4],  # another is no number: wrong
        ],
        dtype=np.float32,
    )
    second = np.broadcast_to(np.arange(5) == 1, offered.shape)
    assert choice_hits(offered, second).tolist() == [True, False, False, False, False]


@pytest.mark.parametrize(
    ("example", "text", "image"),
    [
        (((0.9, 0.1), (0.2, 0.8)), True, True),
        (((0.1, 0.9), (0.8, 0.2)), False, False),
        (((0.6, 0.8), (0.5, 0.9)), True, False),  # caption 0 prefers image 1
        (((0.6, 0.5), (0.8, 0.9)), False, True),  # image 0 prefers caption 1
        (((0.9, 0.5), (0.3, 0.2)), False, False),  # one image of two is not enough
        (((0.5, 0.1), (0.5, 0.9)), False, True),  # image 0 cannot tell its captions apart
        (((0.5, 0.5), (0.1, 0.9)), True, False),  # caption 0 cannot tell its images apart
        (((np.nan, 0.1), (0.2, 0.8)), False, False),
    ],
)
def test_winoground_by_hand(example, text, image):
    found = winoground_hits(np.array([example], dtype=np.float32))
    assert {name: bool(hits[0]) for name, hits in found.items()} == {
        "text_score": text,
        "image_score": image,
        "group_score": text and image,
    }


def test_winogrounds_chance_is_the_share_of_the_orders_of_four_scores():
    orders = np.array(list(itertools.permutations(range(4))), dtype=np.float32).reshape(-1, 2, 2)
    shares = {name: float(hits.mean()) for name, hits in winoground_hits(orders).items()}
    assert shares == pytest.approx(WINOGROUND_CHANCE)


@pytest.fixture
def job(labelled, tmp_path):
    """Run two steps of one rank in this process; its folder and events."""

    def _run(name="run", model="bridgetower", options=None, **protocol):
        run = tmp_path / name
        spec = make_spec(model={"name": model}, steps=2, **protocol)
        return run, train_here(labelled, run, spec, options)

    return _run


@pytest.fixture(scope="module")
def examples(tmp_path_factory):
    out = tmp_path_factory.mktemp("winoground") / "examples.json"
    fetch_winoground("generated", GeneratedExamples(examples=3), out)
    return out


def test_a_model_is_scored_before_and_after_training(job, examples, monkeypatch):
    monkeypatch.setattr(evaluation, "read_choices", with_choices)
    released = []
    monkeypatch.setattr(DeviceAdapter, "release", lambda _: released.append(1))
    run, events = job(options=Options(winoground=str(examples)), evaluate=True)
    before, after = named(events, "evaluation")
    order = [event["event"] for event in events]
    assert order.index("evaluation") < order.index("step") < order.index("window")
    assert (before["moment"], after["moment"]) == ("before", "after")
    assert len(released) == 2, "after drawing the weights, and after the evaluation"
    for event in (before, after):
        assert event["winoground"] == "generated"
        assert event["seconds"] > 0
        scores = {(one["on"], one["metric"]): one for one in event["scores"]}
        metrics = ("image_to_text_recall_at_1", "text_to_image_recall_at_1", "matching_accuracy")
        assert scores.keys() == {
            *itertools.product(("validation", "test"), metrics),
            *(("winoground", name) for name in WINOGROUND_CHANCE),
        }
        assert scores["test", "matching_accuracy"]["chance"] == 0.2
        assert sum(scores["test", "matching_accuracy"]["of"]) == 6
        assert scores["winoground", "text_score"]["of"] == [1, 1, 1]
        for one in event["scores"]:
            assert len(one["right"]) == len(one["of"])
            assert all(0 <= right <= of for right, of in zip(one["right"], one["of"], strict=True))
    results = json.loads((run / "trainer/test_results.json").read_text())
    assert results["predict_samples"] == 6  # all rows, the incomplete batch too
    (recall,) = (s for s in after["scores"] if s["metric"] == metrics[0] and s["on"] == "test")
    assert results[f"predict_{metrics[0]}"] == sum(recall["right"]) / sum(recall["of"])
    assert results["predict_loss"] > 0
    assert (run / "trainer/validation_results.json").is_file()


def with_choices(data, built):
    texts = [["king"] * len(data)] * 5
    tokens = [evaluation.tokenise(built.tokenizer, some, 6) for some in texts]
    return tokens, np.zeros(len(data), dtype=np.int64)


def test_losses_are_the_same_with_and_without_evaluation(job):
    """Those of FLAVA: it draws the masks of its own losses too."""
    losses = [
        [e["loss"] for e in named(job(f"{scored}", "flava", evaluate=scored)[1], "step")]
        for scored in (True, False)
    ]
    assert losses[0] == losses[1]


def test_a_model_that_does_not_fit_before_training_is_a_note(job, monkeypatch):
    whole = evaluation.read_answers

    def full(trainer, *arguments):
        if trainer.state.global_step == 0:
            raise MemoryError("out of memory")
        return whole(trainer, *arguments)

    monkeypatch.setattr(evaluation, "read_answers", full)
    _, events = job(evaluate=True)
    assert [one["moment"] for one in named(events, "evaluation")] == ["after"]
    (note,) = named(events, "note")
    assert (note["about"], note["out_of_memory"]) == ("evaluation before training", True)
    assert named(events, "window")


WAYS = {
    "ddp": {},
    "fsdp": {"strategy": "fsdp"},
    "fsdp1": {"strategy": "fsdp", "limit_all_gathers": True},
}


def evaluations(labelled, folder, count, **train):
    """The evaluations of a job whose ranks divide the batch."""
    spec = make_spec(count=count, evaluate=True, batch_size=4 // count, steps=2, train=train)
    run = write_spec(folder, spec)
    module = ["feedrate", "worker", "--run", str(run), "--data", str(labelled)]
    command = launch_command(in_warm_processes(spec), module)
    done = subprocess.run(
        command, env=of_a_script(), capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr[-6000:]
    return named(read_events(run / "events.jsonl"), "evaluation")


@pytest.fixture(scope="module")
def evaluated(labelled, tmp_path_factory):
    """The evaluations of one rank."""
    return evaluations(labelled, tmp_path_factory.mktemp("one") / "run", 1)


@pytest.mark.parametrize("train", WAYS.values(), ids=WAYS)
def test_ranks_evaluate_as_one_does(labelled, evaluated, tmp_path, train):
    found = evaluations(labelled, tmp_path / "run", 2, **train)
    assert [one["moment"] for one in found] == ["before", "after"]
    assert evaluated[0]["scores"] == found[0]["scores"], "the same weights before training"
    sizes = [[(s["on"], s["metric"], s["of"]) for s in e[1]["scores"]] for e in (evaluated, found)]
    assert sizes[0] == sizes[1], "all rows, once"
