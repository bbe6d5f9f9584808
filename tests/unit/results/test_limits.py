"""The limit of a cell: its name, and the range of what removing it would gain."""

import math
import random
from statistics import median
from typing import get_args

import pytest
from collected_rows import W0, cells_of
from hypothesis import given, settings
from hypothesis import strategies as st
from record_builder import make_record, make_spec, make_study, runs_of

from feedrate.config.study import Factor, Thresholds
from feedrate.results.limits import Name, limit_of
from feedrate.results.statistics import Estimate


def row(**changes):
    """A cell with little wait, on one GPU; `model=1.6` is the ratio of a ceiling to training."""
    cell = {
        **{"status": "ok", "task": "training", "samples_per_s": 100.0, "data_wait_share": 0.01},
        **{"world_size": 1, "loader_workers": 2, "decodes_on_device": False},
        **{"cores_busy_share": 0.5, "peak_memory_gib": 20.0, "device_memory_gib": 80.0},
        "device_kind": "cuda",
    }
    parts = {"loader": 3.0, "model": 1.02, "exchange": None}
    half = changes.pop("half_width", 0.01)
    for part in parts:
        ratio = changes.pop(part, parts[part])
        known = None if ratio is None else (ratio, ratio * (1 - half), ratio * (1 + half))
        value, low, high = known or (None, None, None)
        cell |= {f"{part}_ratio": value, f"{part}_ratio_low": low, f"{part}_ratio_high": high}
    return cell | changes


def limit(lines=None, others=(), **changes):
    return limit_of(row(**changes), lines or Thresholds(), 80.0, others)


CROWDED = {"loader_workers": 16, "cores_busy_share": 0.98, "model": 1.31, "loader": 2.1}
RANKS = {"world_size": 4, "slow_rank": 2, "data_wait_share": 0.08, "model": 1.4}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, "computing"),
        ({"data_wait_share": 0.4, "model": 1.6}, "data loading"),
        ({"data_wait_share": 0.4, "model": 1.05}, "computing"),
        ({"model": 1.1}, ""),
        ({"model": 1.4}, "data loading"),
        # Blocks after the window have no epochs: the model alone says nothing about their starts.
        ({"epoch_start_share": 0.12, "model": 1.0}, "starting epochs"),
        ({"epoch_start_share": 0.104, "model": 1.0}, "data loading"),
        ({"epoch_start_share": 0.104, "model": 1.0, "ok_runs": 9}, "starting epochs"),
        ({"epoch_start_share": 0.12, "model": 1.0, "block_noise": 0.1}, "data loading"),
        ({"epoch_start_share": 0.05, "model": 1.0}, "computing"),
        # Without the model alone: the wait.
        ({"model": None}, "computing"),
        ({"data_wait_share": 0.4, "model": None}, ""),
        ({"data_wait_share": 0.01, "copy_wait_share": 0.11, "model": None}, "computing"),
        (
            {"data_wait_share": 0.01, "copy_wait_share": 0.11, "model": None, "device_kind": "cpu"},
            "",
        ),
        # Several ranks: the model alone exchanges nothing.
        ({"model": 1.4, "world_size": 8}, "gradient exchange"),
        ({"model": 1.15, "world_size": 8}, ""),
        ({"model": 1.2, "world_size": 4, "exchange": 5.0}, "gradient exchange"),
        ({"model": 1.2, "world_size": 4, "exchange": 50.0}, "data loading"),
        ({"model": 1.4, "world_size": 4, "exchange": 8.0}, "data loading"),
        # By the estimate it takes 11% of a step, and 20% are lost; by the interval up to 26%.
        ({"model": 1.25, "world_size": 4, "exchange": 8.0, "half_width": 0.08}, ""),
        ({"model": 1.25, "world_size": 4, "exchange": 8.0}, "gradient exchange"),
        (RANKS | {"slow_rank_ratio_low": 1.2}, "slow rank"),
        (RANKS | {"slow_rank_ratio_low": 1.05}, "gradient exchange"),
        (RANKS | {"slow_rank_ratio_low": None}, "gradient exchange"),
        (RANKS | {"slow_rank": None, "slow_rank_ratio_low": 1.2}, "gradient exchange"),
        # Loader and model share too few cores.
        (CROWDED, "CPU cores"),
        (CROWDED | {"data_wait_share": 0.2}, "CPU cores"),
        (CROWDED | {"model": 1.02}, "computing"),
        (CROWDED | {"cores_busy_share": 0.4}, "data loading"),
        (CROWDED | {"cores_busy_share": 0.4, "cores_waited_share": 0.2}, "CPU cores"),
        (CROWDED | {"loader_workers": 0}, "data loading"),
        (CROWDED | {"model": 1.15, "half_width": 0.1}, "CPU cores"),
        (CROWDED | {"model": 1.15, "half_width": 0.2}, ""),
        # The device.
        ({"device_busy_share": 0.99}, "computing"),
        ({"device_busy_share": 0.6}, "launching"),
        ({"peak_memory_gib": 78}, "memory"),
        ({"peak_memory_gib": 70}, "computing"),
        ({"peak_memory_gib": 74, "device_memory_gib": 76.0}, "memory"),
        ({"peak_memory_gib": 78, "data_wait_share": 0.4, "model": 1.6}, "data loading"),
        ({"peak_memory_gib": 78, "data_wait_share": 0.4, "model": 1.03}, "computing"),
    ],
)
def test_each_limit(changes, expected):
    assert limit(**changes).name == expected


def test_cells_without_a_rate_and_inference():
    assert limit(status="out_of_memory") == ("memory", None, None)
    assert limit(status="failed") == ("", None, None)
    assert limit(task="inference") == ("", None, None)
    assert limit_of(row(peak_memory_gib=90.0), Thresholds(), None).name == "computing"


def test_the_range_is_that_of_the_model_alone():
    assert limit(model=1.2)[1:] == pytest.approx((0.188, 0.212))
    assert limit(model=1.005)[1:] == pytest.approx((0, 0.01505))
    assert limit(model=1.2, epoch_start_share=0.2)[1:] == pytest.approx((0.485, 0.515))


def test_without_the_model_alone_it_is_what_the_wait_allows():
    assert limit(model=None, data_wait_share=0.2)[1:] == pytest.approx((0, 0.25))
    once = {"model_ratio": 1.1, "model_ratio_low": None, "model_ratio_high": None}
    assert limit(model=None, data_wait_share=0.2, **once)[1:] == pytest.approx((0, 0.25))


def test_of_several_ranks_what_exchange_may_explain_is_no_gain_of_a_loader():
    low, high = limit(model=1.4, world_size=4)[1:]
    assert (low, high) == (0, pytest.approx(0.414))
    low, high = limit(model=1.4, world_size=4, exchange=20.0)[1:]
    assert low == pytest.approx(1 / (1 / 1.386 + 1 / 19.8) - 1)
    assert high == pytest.approx(0.414)


def test_a_model_alone_that_is_slower_than_training_is_no_ceiling():
    assert limit(model=0.6, data_wait_share=0.3)[1:] == pytest.approx((0, 1 / 0.7 - 1))
    assert limit(model=0.6, data_wait_share=0.01).name == "computing"


def test_a_cell_that_computes_the_same_shows_what_the_model_reaches():
    """The model alone was 1.33 times as fast, and a worker made training 1.5 times as fast."""
    slow = {"model": 1.33, "half_width": 0.07}
    assert limit(**slow, others=[Estimate(1.5, 1.4, 1.6)]).gain_high == pytest.approx(0.6)
    assert limit(**slow, others=[Estimate(1.5, 1.3, 1.7)]).gain_high == pytest.approx(0.4231)
    assert limit(**slow, others=[Estimate(1.2, 1.19, 1.21)]).gain_high == pytest.approx(0.4231)
    assert limit(others=[Estimate(1.0, None, None)]).gain_high == pytest.approx(0.0302)


def test_the_lines_are_the_studys():
    assert limit(Thresholds(limit_ratio=1.5), model=1.4).name == "computing"
    assert limit(Thresholds(full_memory_share=0.2)).name == "memory"


RATIO = st.none() | st.floats(0.01, 1e3)


@settings(max_examples=60, deadline=None)
@given(
    changes=st.fixed_dictionaries(
        {
            **dict.fromkeys(("loader", "model", "exchange"), RATIO),
            **{"half_width": st.floats(0, 0.9), "data_wait_share": st.floats(0, 1)},
            **{"world_size": st.integers(1, 8), "loader_workers": st.integers(0, 16)},
            "peak_memory_gib": st.none() | st.floats(0.01, 1e3),
        }
    )
)
def test_every_cell_has_a_finite_range(changes):
    name, low, high = limit(**changes)
    assert name in get_args(Name)
    assert 0 <= low <= high < math.inf
    if name == "data loading":
        assert low >= 0.1 - 1e-9
    if name in ("computing", "launching"):
        assert high < 0.1


@pytest.mark.parametrize(
    ("rate", "sets", "reaches"),
    [
        (15.0, "loader.decode", True),
        (13.0, "loader.decode", False),
        # A device that computes less, or something else, tells nothing of this model alone.
        (15.0, "loader.max_tokens", False),
        (15.0, "train.precision", False),
    ],
)
def test_a_cell_that_only_loads_otherwise_tells_what_the_model_reaches(rate, sets, reaches):
    study = make_study(
        factors={
            "workers": Factor(sets="loader.workers", levels=[0, 1]),
            "decode": Factor(sets=sets, levels=["host", "device"]),
        }
    )
    # The model alone runs at 12 in one cell, and below the rate in the other.
    fast = make_record(rate, spec=make_spec(1, "device"), model=12.5)
    cells = cells_of([*runs_of(0, [10.0]), fast], study=study, unsupported=[])
    assert (cells[W0]["gain_high"] > 0.25) is reaches


def test_of_many_equal_cells_few_seem_to_outrun_the_model_alone():
    study = make_study(
        factors={
            "workers": Factor(sets="loader.workers", levels=list(range(30))),
            "decode": Factor(sets="loader.decode", levels=["host"]),
        }
    )
    chance, wide = random.Random(2), []
    for _ in range(4):
        records = []
        for workers in range(30):
            for repeat in (1, 2, 3):
                rate, model = (100 * math.exp(chance.gauss(0, 0.02)) for _ in range(2))
                spec = make_spec(workers, repeat=repeat)
                records.append(make_record(rate, spec=spec, model=model))
        cells = cells_of(records, study=study, unsupported=[]).values()
        wide += [cell["gain_high"] for cell in cells]
    assert median(wide) < 0.05
    assert sum(gain > 0.1 for gain in wide) <= 6, "5% of 120 cells"
