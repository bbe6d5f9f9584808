"""When a loss departs by more than seeds do."""

import pytest

from feedrate.results.collect import KEY, add_losses

A, B, C = ("s", "cpu", "a"), ("s", "cpu", "b"), ("s", "cpu", "c")


def runs(*losses, status="ok", **changes):
    common = {
        "status": status,
        "steps": 10,
        "warmup_steps": 2,
        "batch_size": 4,
        "gradient_accumulation": 1,
        "world_size": 1,
        "losses": "own",
        "model": "flava-tiny",
        "keeps_last_batch": False,
        "loss_digest": "",
    }
    return [
        {**common, "repeat": k, "loss_end": loss, **changes} for k, loss in enumerate(losses, 1)
    ]


def departed(runs):
    """The losses of cells, by cell; A is the baseline of all."""
    cells = {key: dict(zip(KEY, key, strict=True)) for key in runs}
    add_losses(list(cells.values()), A, runs)
    return cells


@pytest.mark.parametrize(("shift", "departs"), [(0.5, True), (0.1, False), (-0.5, True)])
def test_a_loss_beyond_what_seeds_do_departs(shift, departs):
    found = departed({A: runs(1.0, 1.2), B: runs(1.0 + shift, 1.2 + shift)})[B]
    assert found["loss_shift"] == pytest.approx(shift)
    assert found["loss_seeds"] == pytest.approx(0.2)
    assert found["loss_departs"] is departs


@pytest.mark.parametrize("changed", [{"losses": "all"}, {"model": "vit-tiny"}])
def test_another_sum_of_losses_or_another_model_is_not_compared(changed):
    common = {"losses": "own", "model": "flava-tiny"}
    found = departed({A: runs(1.0, 1.2, **common), B: runs(2.0, 2.2, **common | changed)})[B]
    assert {found[name] for name in ("loss_shift", "loss_departs", "loss_identical")} == {None}


def test_the_effect_of_seeds_is_not_that_of_cells_that_are_not_compared():
    wild = runs(1.0, 3.0, losses="all")
    own = {A: runs(1.0, 1.1, losses="own"), B: runs(1.5, 1.6, losses="own")}
    found = departed({**own, C: wild, ("s", "cpu", "d"): wild})
    assert found[B]["loss_seeds"] == pytest.approx(0.1)
    assert found[B]["loss_departs"] is True


def test_repeats_are_compared_by_their_seed():
    found = departed({A: runs(1.0, 2.0, 3.0), B: runs(1.1, 2.1, status="ok")})[B]
    assert found["loss_shift"] == pytest.approx(0.1)


def test_a_reference_whose_seeds_happen_to_agree_flags_nobody():
    cells = {A: runs(1.0, 1.001), B: runs(0.9, 1.1), C: runs(1.0, 1.25)}
    found = departed(cells)
    assert found[C]["loss_seeds"] == pytest.approx(0.2)
    assert not found[B]["loss_departs"]
    assert not found[C]["loss_departs"]


def test_a_cell_that_runs_wild_does_not_hide_itself():
    cells = {A: runs(1.0, 1.1), B: runs(1.0, 6.0), C: runs(1.0, 1.1)}
    assert departed(cells)[B]["loss_departs"] is True


def test_the_reference_is_not_compared_with_itself():
    found = departed({A: runs(1.0, 1.2), B: runs(1.0, 1.2)})[A]
    assert found["loss_seeds"] == pytest.approx(0.2)
    assert {found[name] for name in ("loss_shift", "loss_departs", "loss_identical")} == {None}


def test_equal_series_of_losses_are_equal_by_construction():
    def with_series(*digests):
        return [r | {"loss_digest": d} for r, d in zip(runs(1.0, 1.2), digests, strict=True)]

    cells = {A: with_series("x", "y"), B: with_series("x", "y"), C: with_series("x", "z")}
    found = departed(cells)
    assert [found[key]["loss_identical"] for key in (B, C)] == [True, False]
    unknown = departed({A: with_series("", ""), B: with_series("", "")})[B]
    assert (unknown["loss_identical"], unknown["loss_departs"]) == (False, False)


@pytest.mark.parametrize(
    "cells",
    [
        {A: runs(1.0), B: runs(9.0)},
        {A: runs(1.0, 1.2), B: runs(9.0)},
        {A: runs(1.0, 1.2), B: runs(9.0, 9.0, status="failed")},
        {A: runs(1.0, 1.2, status="invalid"), B: runs(9.0, 9.0)},
        {A: runs(1.0, 1.2), B: runs(9.0, 9.0, batch_size=8)},
        {A: runs(1.0, 1.2), B: runs(9.0, 9.0, keeps_last_batch=True)},
        {A: runs(1.0, 1.2), B: runs(None, None)},
        {B: runs(9.0, 9.0)},
    ],
)
def test_what_cannot_be_compared_is_not_flagged(cells):
    assert departed(cells)[B]["loss_departs"] is None
