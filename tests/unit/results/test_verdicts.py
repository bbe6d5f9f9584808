"""The limit of a cell, with the statements that a referee refuted."""

import math
import random
from statistics import median
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from record_builder import make_study

from feedrate.config.study import Factor, Thresholds
from feedrate.results.recommendation import OK_RATES
from feedrate.results.statistics import Estimate, pooled_noise
from feedrate.results.verdicts import STARTS, Name, below_rate, cell_verdict, faster_cells


def row(**changes):
    """A cell with little wait, on one GPU; `model=1.6` is the ratio of a ceiling to training."""
    cell = {
        **{"status": "ok", "task": "training", "samples_per_s": 100.0, "data_wait_share": 0.01},
        **{"world_size": 1, "loader_workers": 2, "decodes_on_device": False},
        **{"oversubscribed": False, "cores_granted": 2, "cores_busy_share": 0.5},
        **{"peak_memory_gib": 20.0, "device_memory_gib": 80.0, "device_kind": "cuda"},
    }
    parts = {"loader": 3.0, "model": 1.02, "exchange": None}
    half = changes.pop("half_width", 0.01)
    for part in parts:
        ratio = changes.pop(part, parts[part])
        known = None if ratio is None else (ratio, ratio * (1 - half), ratio * (1 + half))
        value, low, high = known or (None, None, None)
        cell |= {f"{part}_ratio": value, f"{part}_ratio_low": low, f"{part}_ratio_high": high}
        cell[f"{part}_samples_per_s"] = ratio and 100 * ratio
    return cell | changes


def found(lines=None, **changes):
    return cell_verdict(row(**changes), lines or Thresholds(), 80.0)


def name(lines=None, **changes):
    return found(lines, **changes).name


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, "compute-bound"),
        ({"data_wait_share": 0.4, "model": 1.6}, "input-bound"),
        # Blocks after the window have no epochs: the model alone says nothing about their starts.
        ({"epoch_start_share": 0.12, "data_wait_share": 0.04, "model": 1.0}, "input-bound"),
        ({"epoch_start_share": 0.05, "model": 1.0}, "compute-bound"),
        ({"data_wait_share": 0.4, "model": None}, "undecided"),
        ({"data_wait_share": 0.4, "model": None, "loader": 1.1}, "input-bound"),
        ({"data_wait_share": 0.4, "model": 1.05}, "mixed"),
        ({"data_wait_share": 0.4, "model": 1.1}, "undecided"),
        ({"data_wait_share": 0.05}, "mixed"),
        ({"loader": 1.2}, "mixed"),
        ({"loader": None}, "undecided"),
        ({"model": None}, "undecided"),
        ({"model": 1.4}, "mixed"),
        ({"model": 1.4, "world_size": 8}, "communication-bound"),
        ({"model": 1.15, "world_size": 8}, "mixed"),
        ({"peak_memory_gib": 78}, "memory-limited"),
        ({"peak_memory_gib": 70}, "compute-bound"),
        ({"loader_workers": 0, "loader": 1.1}, "compute-bound"),
        ({"loader_workers": 0, "loader": 1.1, "decodes_on_device": True}, "mixed"),
        ({"loader_workers": 0, "loader": None, "decodes_on_device": True}, "undecided"),
        ({"loader_workers": 0, "decodes_on_device": True}, "compute-bound"),
        ({"loader_workers": 0, "data_wait_share": 0.4, "model": 1.6}, "input-bound"),
        # A serial loader takes its time in every step: here a third of it, there a twentieth.
        ({"loader_workers": 0, "data_wait_share": 0.3, "model": 1.1, "loader": 3.0}, "input-bound"),
        ({"loader_workers": 0, "data_wait_share": 0.12, "model": None, "loader": 20}, "undecided"),
        ({"loader_workers": 0, "data_wait_share": 0.3, "model": 1.0, "loader": 3.0}, "mixed"),
        ({"loader_workers": 0, "cores_busy_share": 1.0, "model": 1.3}, "mixed"),
    ],
)
def test_each_limit(changes, expected):
    assert name(**changes) == expected


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        # A single run with 10.4% was input-bound, at a line of 10%.
        ({}, "undecided"),
        ({"epoch_start_share": 0.096}, "undecided"),
        ({"epoch_start_share": 0.11}, "input-bound"),
        ({"epoch_start_share": 0.11, "block_noise": 0.1}, "undecided"),
        ({"epoch_start_share": 0.09}, "mixed"),
        ({"ok_runs": 9}, "input-bound"),
        # What is certain without the starts of epochs stays so.
        ({"data_wait_share": 0.4, "model": 1.6}, "input-bound"),
        ({"model": 1.4, "world_size": 8}, "communication-bound"),
    ],
)
def test_starts_of_epochs_decide_beyond_the_noise_of_single_runs(changes, expected):
    cell = {"epoch_start_share": 0.104, "data_wait_share": 0.048, "model": 1.0, "ok_runs": 1}
    verdict = found(**(cell | changes))
    assert verdict.name == expected
    by_starts = verdict.name != "mixed" and "model" not in changes
    assert (STARTS in verdict.why) is by_starts


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, "undecided"),
        ({"data_wait_share": 0.01, "copy_wait_share": 0.11}, "undecided"),
        ({"loader": 1.05}, "input-bound"),
        ({"loader_workers": 0}, "input-bound"),
    ],
)
def test_on_a_cpu_too_a_fast_loader_in_parallel_is_not_called_the_limit(changes, expected):
    """12% wait beside a loader five times as fast, and nothing measured of the model alone."""
    cell = {"data_wait_share": 0.12, "loader": 5.0, "model": None} | changes
    assert name(**cell, device_kind="cpu") == expected
    once = {"model_ratio": 1.1, "model_ratio_low": None, "model_ratio_high": None}
    verdict = cell_verdict(row(**cell, device_kind="cpu") | once, Thresholds(), 80.0)
    assert verdict.name == expected


def test_full_memory_does_not_outrank_a_long_wait():
    full = {"peak_memory_gib": 76.5, "data_wait_share": 0.4}
    assert name(**full, model=1.6, loader=1.05) == "input-bound"
    assert name(**full, model=1.03) == "mixed"
    assert name(**full | {"data_wait_share": 0.01}) == "memory-limited"


def test_a_model_alone_that_is_slower_than_training_proves_nothing():
    """A ratio of 0.60 was called compute-bound."""
    assert name(model=0.6) == "undecided"
    assert "slower than training" in found(model=0.6).why


def test_a_ceiling_without_an_interval_decides_nothing():
    """Files of earlier versions have one measurement of each ceiling."""
    once = {f"{part}_ratio{end}": None for part in ("model", "loader") for end in ("_low", "_high")}
    assert cell_verdict(row() | once, Thresholds(), 80.0).name == "undecided"


@pytest.mark.parametrize("changes", [{"model": 1.1}, {"loader": 1.3}])
def test_an_interval_across_a_line_is_undecided_and_says_so(changes):
    verdict = found(**changes, half_width=0.05)
    assert verdict.name == "undecided"
    reason = verdict.why.partition(":")[0]
    assert f"at least {next(iter(changes.values())):.1f}" in reason
    assert "does not decide" in reason


def test_loader_and_model_that_share_too_few_cores_have_a_name():
    crowded = {"loader_workers": 16, "oversubscribed": True, "cores_busy_share": 0.98}
    assert name(**crowded, model=1.31, loader=2.1) == "core-bound"
    assert name(**crowded, model=1.31, loader=2.1, data_wait_share=0.2) == "core-bound"
    assert name(**crowded, model=1.02, loader=2.1) == "compute-bound"
    idle = crowded | {"cores_busy_share": 0.4}
    assert name(**idle, model=1.31, loader=2.1) == "mixed"
    assert name(**idle, model=1.31, loader=2.1, cores_waited_share=0.2) == "core-bound"
    assert name(**crowded, model=1.15, loader=2.1, half_width=0.1) == "core-bound"
    assert name(**crowded, model=1.15, loader=2.1, half_width=0.2) == "undecided"


def test_the_slow_rank_is_named():
    ranks = {"world_size": 4, "slow_rank": 2, "data_wait_share": 0.08, "model": 1.4}
    slow = found(**ranks, slow_rank_ratio_low=1.2)
    assert slow.name == "rank-bound"
    assert "rank 2" in slow.why.lower()
    assert name(**ranks, slow_rank_ratio_low=1.05) != "rank-bound"
    assert name(**ranks, slow_rank_ratio_low=None) != "rank-bound"
    assert name(**ranks | {"slow_rank": None}, slow_rank_ratio_low=1.2) != "rank-bound"


def test_an_exchange_that_explains_the_loss_is_the_limit():
    assert name(world_size=4, model=1.2, exchange=5.0) == "communication-bound"
    # By the estimate it takes 11% of a step, and 20% are lost; by the interval up to 26%.
    assert name(world_size=4, model=1.25, exchange=8.0, half_width=0.08) == "mixed"
    assert name(world_size=4, model=1.25, exchange=8.0, half_width=0.01) == "communication-bound"
    assert name(world_size=4, model=1.2, exchange=50.0) == "mixed"
    assert name(world_size=4, model=1.4) == "communication-bound"


def test_a_device_without_work_is_launch_bound():
    assert name(device_busy_share=0.99) == "compute-bound"
    assert name(device_busy_share=0.6) == "launch-bound"
    unknown = found()
    assert unknown.name == "compute-bound"
    assert "was not measured" in unknown.why
    assert "was not measured" not in found(device_kind="cpu").why


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"data_wait_share": 0.15}, "input-bound"),
        ({"data_wait_share": 0.05, "copy_wait_share": 0.06}, "input-bound"),
        ({"data_wait_share": 0.05, "copy_wait_share": 0.04}, "mixed"),
        ({"loader_workers": 0}, "compute-bound"),
        ({"loader": 60.0}, "compute-bound"),
        ({"loader": 20.0}, "undecided"),
        ({"loader_workers": 0, "world_size": 2}, "undecided"),
    ],
)
def test_where_nothing_runs_while_a_process_waits_the_wait_decides(changes, expected):
    """The model alone cannot be told apart from training: its interval is wide."""
    noisy = {"model": 1.1, "data_wait_share": 0.01} | changes
    assert name(**noisy, device_kind="cpu") == expected
    assert name(**noisy) in ("undecided", "mixed")


def test_memory_is_compared_with_what_the_card_really_has():
    """A card sold with 80 GiB has less for a job."""
    unknown = row(peak_memory_gib=74, device_memory_gib=None)
    assert cell_verdict(unknown, Thresholds(), 80).name == "compute-bound"
    assert cell_verdict(unknown, Thresholds(), None).name == "compute-bound"
    full = found(peak_memory_gib=74, device_memory_gib=76.0, reserved_memory_gib=75.24)
    assert full.name == "memory-limited"
    assert "97%" in full.why
    assert "99%" in full.why


def test_a_ceiling_below_the_rate_beyond_its_interval_is_flagged():
    assert below_rate(row()) == ""
    assert below_rate(row(model=0.96)) == "model"
    assert below_rate(row(model=0.96, loader=0.9)) == "loader;model"
    assert below_rate(row(model=0.995)) == ""
    assert below_rate({"model_samples_per_s": 90, "samples_per_s": 100}) == ""


def test_a_model_alone_below_a_cell_that_computes_the_same_is_no_ceiling():
    """The model alone was 1.33 times as fast, and a worker made training 1.5 times as fast."""
    slow = {"model": 1.33, "half_width": 0.07}
    assert below_rate(row(**slow), [Estimate(1.5, 1.4, 1.6)]) == "model"
    assert below_rate(row(**slow), [Estimate(1.5, 1.3, 1.7)]) == "", "noise may explain it"
    assert below_rate(row(**slow), [Estimate(1.2, 1.19, 1.21)]) == ""
    assert below_rate(row(model=None), [Estimate(1.5, 1.4, 1.6)]) == ""


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"model": 1.02}, "undecided"),
        ({"model": 1.05, "data_wait_share": 0.4}, "undecided"),
        # What the model could reach is not less than it did reach.
        ({"model": 1.6, "data_wait_share": 0.4}, "input-bound"),
        ({"model": 1.4, "world_size": 8, "exchange": 3.0}, "mixed"),
    ],
)
def test_where_another_cell_outruns_the_model_alone_it_has_no_upper_end(changes, expected):
    verdict = found(**changes, below_rate="model")
    assert verdict.name == expected
    assert "not a ceiling" in verdict.why
    assert "inf" not in verdict.why


@pytest.mark.parametrize(
    ("wait", "expected"),
    [(0.16, "input-bound"), (0.104, "undecided"), (0.097, "undecided"), (0.09, "mixed")],
)
def test_a_wait_that_nothing_else_confirms_decides_beyond_noise(wait, expected):
    """A single run with 10.1% was input-bound, at a line of 10%."""
    cell = {"model": 1.1, "half_width": 0.05, "device_kind": "cpu", "loader_workers": 0}
    verdict = found(**cell, data_wait_share=wait)
    assert verdict.name == expected
    assert ("does not decide" in verdict.why) is (expected != "mixed")
    assert name(**cell | {"model": 1.6}, data_wait_share=0.104) == "input-bound"


def test_the_lines_are_the_studys():
    lines = Thresholds(compute_bound_wait_share=0.06)
    assert name(lines, data_wait_share=0.05) == "compute-bound"
    assert name(Thresholds(replay_gain=1.5), model=1.4) == "compute-bound"


def test_out_of_memory_is_pressed_for_memory():
    cell = {"status": "out_of_memory", "cause": "The device ran out."}
    verdict = cell_verdict(cell, Thresholds(), None)
    assert verdict == ("memory-limited", "The device ran out.")


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
def test_every_cell_gets_one_verdict_and_one_sentence(changes):
    verdict = found(**changes)
    assert verdict.name in get_args(Name)
    assert verdict.why.endswith(".")
    assert "None" not in verdict.why
    if verdict.name == "communication-bound":
        assert changes["world_size"] > 1
    if verdict.name == "input-bound":
        assert changes["data_wait_share"] >= Thresholds().input_bound_wait_share


def test_among_many_equal_cells_few_seem_to_outrun_the_model_alone():
    study = make_study(
        factors={"workers": Factor(sets="loader.workers", levels=list(range(30)))},
        baseline={"workers": 0},
    )
    chance, flagged = random.Random(2), 0
    for _ in range(10):
        runs = [[100 * math.exp(chance.gauss(0, 0.04)) for _ in range(3)] for _ in range(30)]
        noise = {("s", "d"): pooled_noise(runs)}
        cells = [
            row(samples_per_s=median(rates), model=1.0, half_width=0.02)
            | {"study": "s", "device": "d", "workers": level, "block_noise": None, OK_RATES: rates}
            for level, rates in enumerate(runs)
        ]
        flagged += sum(below_rate(c, faster_cells(c, cells, study, noise)) != "" for c in cells)
    assert flagged <= 15, "5% of 300 cells"
