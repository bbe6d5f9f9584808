import math
import random
from statistics import median

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from feedrate.config.values import rate_text, size_text
from feedrate.results.statistics import (
    Noise,
    block_noise,
    critical,
    median_interval,
    noise_by_device,
    noise_of,
    pooled_noise,
    ratio_interval,
    selection_bias,
    spread,
)

RATES = st.lists(st.floats(0.1, 1e4), min_size=1, max_size=9)
SD = 0.02


def studies(count, cells, repeats, *, slow=0.0, seed=1):
    """Rates of `cells` equal cells at 100 samples/s in each of `count` studies; a share `slow` of
    the runs is 10% to 40% slower."""
    noise = random.Random(seed)

    def rate():
        late = noise.uniform(0.6, 0.9) if noise.random() < slow else 1.0
        return 100 * late * math.exp(noise.gauss(0, SD))

    for _ in range(count):
        yield [[rate() for _ in range(repeats)] for _ in range(cells)]


def coverage(found, **options):
    covered = []
    for cells in studies(**options):
        noise = pooled_noise(cells)
        covered += [low <= 100 <= high for _, low, high in (found(c, noise) for c in cells)]
    return sum(covered) / len(covered)


@settings(max_examples=60, deadline=None)
@given(values=RATES, confidence=st.floats(0.5, 0.99))
def test_the_interval_holds_the_median(values, confidence):
    found = median_interval(values, confidence)
    assert found.value == median(values)
    if len(values) == 1:
        assert (found.low, found.high) == (None, None)
    else:
        assert found.low <= found.value <= found.high


@settings(max_examples=40, deadline=None)
@given(values=RATES, factor=st.sampled_from([0.5, 2.0, 8.0]))
def test_intervals_scale_with_the_values(values, factor):
    one, scaled = (median_interval([v * k for v in values], 0.95) for k in (1.0, factor))
    assert scaled == tuple(None if x is None else pytest.approx(x * factor) for x in one)


@settings(max_examples=40, deadline=None)
@given(values=RATES, seed=st.integers(0, 99))
def test_the_order_of_the_values_does_not_matter(values, seed):
    shuffled = random.Random(seed).sample(values, len(values))
    one, other = median_interval(values, 0.95), median_interval(shuffled, 0.95)
    assert one == pytest.approx(other)


@pytest.mark.parametrize(
    ("dof", "share", "quantile"),
    [(1, 0.95, 12.706), (2, 0.95, 4.303), (3, 0.9, 2.353), (4, 0.99, 4.604), (30, 0.95, 2.042)],
)
def test_quantiles_of_students_t_are_those_of_the_tables(dof, share, quantile):
    assert critical(share, dof) == pytest.approx(quantile, abs=6e-4)


@pytest.mark.parametrize("repeats", [2, 3, 5])
@pytest.mark.parametrize("slow", [0.0, 0.05])
def test_intervals_cover_as_often_as_they_say(repeats, slow):
    share = coverage(
        lambda cell, noise: median_interval(cell, 0.95, noise),
        **{"count": 150, "cells": 8, "repeats": repeats, "slow": slow},
    )
    assert 0.92 <= share <= 0.99


def test_of_22_equal_settings_hardly_any_study_finds_one_that_is_faster():
    found = [
        any(
            ratio_interval(cell, base, 0.95, pooled_noise([base, *others]), 21).low > 1
            for cell in others
        )
        for base, *others in studies(100, 22, 3, seed=2)
    ]
    assert sum(found) <= 5


def test_one_slow_run_widens_no_other_cells_interval():
    quiet = [[100.0, 101.0, 102.0], [50.0, 50.6, 51.0], [80.0, 81.0, 82.0]]
    disturbed = [*quiet[:2], [80.0, 81.0, 40.0]]
    assert pooled_noise(disturbed).sd < 2.5 * pooled_noise(quiet).sd
    assert noise_of(disturbed[2], pooled_noise(disturbed)) == pooled_noise(disturbed)


@pytest.mark.parametrize("values", [[80.0, 40.0], [80.0, 60.0, 40.0]])
def test_a_cell_whose_runs_do_not_agree_keeps_its_own_noise(values):
    noise = pooled_noise([[100.0, 101.0, 102.0], [50.0, 50.6, 51.0], [80.0, 81.0, 82.0]])
    assert noise_of(values, noise) == noise._replace(sd=pooled_noise([values]).sd)
    wide, narrow = median_interval(values, 0.95, noise), median_interval([60.0], 0.95, noise)
    assert wide.low < narrow.low < narrow.high < wide.high


@pytest.mark.parametrize("repeats", [2, 3, 5])
def test_of_22_equal_cells_none_keeps_its_own_noise_in_95_of_100_studies(repeats):
    odd = 0
    for cells in studies(100, 22, repeats):
        noise = pooled_noise(cells)
        odd += any(noise_of(cell, noise) is not noise for cell in cells)
    assert odd <= 8


def test_noise_is_the_pooled_standard_deviation_with_its_degrees_of_freedom():
    logs = [[0.0, 0.02], [1.0, 1.01, 1.02]]
    sd, *counts = pooled_noise([[math.exp(x) for x in cell] for cell in logs])
    assert sd == pytest.approx(math.sqrt((0.0002 + 0.0002) / 3))
    assert counts == [3, 2], "degrees of freedom, and cells"
    assert pooled_noise([[1.0], [2.0]]) is None
    assert pooled_noise([[1.0, 1.0]], floor=0.1) == (0.1, 1, 1)


def test_noise_is_that_of_a_devices_own_runs():
    def run(device, cell, rate, **more):
        told = {"study": "s", "device": device, "cell": cell, "status": "ok"}
        return {**told, "samples_per_s": rate, **more}

    rows = [run("a", "x", 10.0), run("a", "x", 10.2), run("a", "y", 5.0), run("b", "x", 1.0)]
    shared = [row | {"cell": "z", "measured_as": "x"} for row in rows[:2]]
    lost = run("a", "y", 50.0) | {"status": "invalid"}
    found = noise_by_device([*rows, *shared, lost])
    assert found == {("s", "a"): pooled_noise([[10.0, 10.2]]), ("s", "b"): None}
    rough = noise_by_device(row | {"block_noise": 0.3} for row in rows)
    assert rough["s", "a"] == (pytest.approx(0.3), 1, 1)


@settings(max_examples=30, deadline=None)
@given(values=st.lists(st.floats(0.1, 1e4), min_size=1, max_size=5))
def test_the_inverse_ratio_has_the_inverse_interval(values):
    other = [1.0, 2.0, 4.0]
    one, inverse = ratio_interval(values, other, 0.9), ratio_interval(other, values, 0.9)
    assert one.low == pytest.approx(1 / inverse.high)
    assert one.high == pytest.approx(1 / inverse.low)


def test_a_ratio_of_single_runs_has_an_interval_only_with_the_noise_of_others():
    assert ratio_interval([2.0], [1.0], 0.95) == (2.0, None, None)
    found = ratio_interval([2.0], [1.0], 0.95, Noise(0.01, 10))
    assert found.high / found.value == pytest.approx(math.exp(2.228 * 0.01 * math.sqrt(2)), 1e-4)


def test_spread_is_what_two_runs_seldom_exceed_however_many_there_are():
    assert spread([9.0]) is None
    noise = random.Random(3)
    for runs in (3, 30):
        sets = [[math.exp(noise.gauss(0, SD)) for _ in range(runs)] for _ in range(300)]
        above = sum(spread(values) > 3.5 * SD for values in sets) / len(sets)
        assert above < (0.25 if runs == 3 else 0.1), "not more often with more repeats"


def test_the_best_of_equal_settings_exceeds_them_as_far_as_told():
    best = [max(median(cell) for cell in cells) / 100 - 1 for cells in studies(300, 22, 3)]
    expected = selection_bias(Noise(SD, 44), 3, 22)
    assert sum(best) / len(best) == pytest.approx(expected, rel=0.15)


def test_blocks_of_steps_tell_the_error_of_their_mean():
    noise = random.Random(5)
    steps = [1 + noise.gauss(0, 0.1) for _ in range(400)]
    assert 0.004 < block_noise(steps) < 0.008, "0.1 over the root of 400 is 0.005"
    bursts = [step + (i // 25 % 4 == 0) for i, step in enumerate(steps)]
    assert block_noise(bursts) > 2 * 0.44 / 1.25 / math.sqrt(400), "more than steps by themselves"
    assert block_noise([1.0] * 40) == 0
    assert block_noise([1.0] * 7) is None


@pytest.mark.parametrize(
    ("size", "said"),
    [(0, "0 bytes"), (900, "900 bytes"), (5e3, "4.88 KiB"), (64 * 2**20, "64 MiB")]
    + [(1000 * 2**20, "0.977 GiB"), (23.37 * 2**30, "23.4 GiB"), (2000 * 2**30, "1.95 TiB")]
    + [(5e3 * 2**40, "4.88 PiB")],
)
def test_a_size_that_is_not_zero_is_never_rounded_to_zero(size, said):
    assert size_text(size) == said


@pytest.mark.parametrize(
    ("rate", "said"),
    [(0.01234, "0.01234"), (14.3, "14.3"), (999.94, "999.9"), (999.97, "1000")]
    + [(1234.6, "1,235"), (15104, "15,104"), (2.5e6, "2,500,000")],
)
def test_a_rate_in_a_sentence_is_no_power_of_ten_and_loses_no_sample(rate, said):
    assert rate_text(rate) == said
