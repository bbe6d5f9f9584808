"""Two processes on gloo: synchronised gradients, and a meter that agrees with a stopwatch."""

import json

import pytest
import torch
from safetensors.torch import load_file
from training_jobs import make_spec, named, read_events, run_ranks
from transformers import set_seed

from feedrate.models.build import build


def run(prepared, out, *, ranks, accumulation):
    words = ("two_ranks.py", prepared, out, ranks, accumulation)
    errors = run_ranks(*words, ranks=ranks, timeout=170)
    weights = [out / f"weights.{rank}.safetensors" for rank in range(ranks)]
    assert weights[-1].is_file(), errors[-2000:]
    return [load_file(file) for file in weights]


@pytest.fixture(scope="module")
def two(tiny_prepared, tmp_path_factory):
    out = tmp_path_factory.mktemp("two") / "run"
    return out, run(tiny_prepared, out, ranks=2, accumulation=1)


@pytest.fixture(scope="module")
def one(tiny_prepared, tmp_path_factory):
    out = tmp_path_factory.mktemp("one") / "run"
    return run(tiny_prepared, out, ranks=1, accumulation=2)[0]


def largest_difference(first, second):
    return max((first[name] - second[name]).abs().max().item() for name in first)


def test_both_ranks_hold_the_same_weights_after_training(two):
    first, second = two[1]
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_ranks_train_on_different_rows_and_average_their_gradients(two, one, tiny_prepared):
    """The loss is of each rank's own batch, so two ranks equal two accumulated micro-steps."""
    losses = [
        [e["loss"] for e in named(read_events(two[0] / name), "step")]
        for name in ("events.jsonl", "events.rank1.jsonl")
    ]
    assert losses[0] != losses[1]
    assert largest_difference(two[1][0], one) < 2e-6
    spec = make_spec()
    set_seed(spec.seed)
    start = build(spec.settings.model, spec.settings.loader, tiny_prepared).model.state_dict()
    assert largest_difference(start, one) > 2e-5  # the tolerance hides no step


def test_each_ranks_window_is_the_stopwatchs(two):
    for rank, name in enumerate(("events.jsonl", "events.rank1.jsonl")):
        (window,) = named(read_events(two[0] / name), "window")
        least_s, most_s = json.loads((two[0] / f"stopwatch.{rank}.json").read_text())
        assert window["samples"] == 4 * 4
        assert least_s <= window["wall_s"] <= most_s
        assert window["wall_s"] >= 4 * 0.3  # the slower rank sleeps 0.3 s a step
