"""Medians and their ratios with t-intervals on the logarithm, from noise pooled over the cells of a
study on a device. docs/measurement.md shows by simulation how often they cover."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import chain, combinations
from operator import itemgetter
from statistics import NormalDist, fmean, median, stdev
from typing import Any, NamedTuple

LIMIT = 2.5 / 0.6745
"""A pair of runs counts as at most so many median pairs: 2.5 standard deviations if normal."""
REPEATABILITY = 2.8
"""Standard deviations that two runs differ by in 95% of cases at most (ISO 5725-6)."""
CONFIDENCE = 0.95  # confidence of intervals outside any study's thresholds
RATE, BLOCK_NOISE = "samples_per_s", "block_noise"
"""The columns with the rate of a run, and its standard error from blocks of steps."""
FEWEST_BLOCKS = 8  # blocks of steps that a standard error needs at least
_VARIANCES = (1.0, 0.5, 0.4487, 0.2982, 0.2868, 0.2147, 0.2104, 0.1682, 0.1661, 0.1383)
"""Variance of the median of 1, 2, … values from the standard normal distribution (Hojo 1931)."""
_AGREE = (
    (-0.01, 1.421), (-0.19, 0.703), (0.22, 0.929), (0.19, 0.586), (0.41, 0.720), (0.39, 0.512),
    (0.56, 0.593), (0.51, 0.464), (0.66, 0.517),
)  # fmt: skip
"""Range of the closest majority of 2, 3, … such values that a share of them exceeds: a + b z, with
z the two-sided quantile (4 million simulated; within 2% for shares of 5% to 0.05%)."""


class Estimate(NamedTuple):
    """A median (or ratio of medians) and its interval; None where the noise is unknown."""

    value: float
    low: float | None
    high: float | None


class Noise(NamedTuple):
    """Standard deviation of ln(rate) between runs of a cell, its degrees of freedom, and the number
    of cells that it is from."""

    sd: float
    dof: int
    cells: int = 1


Noises = Mapping[tuple[str, str], Noise | None]
"""The noise by study and device; None where no cell has two runs."""


def pooled_noise(groups: Iterable[Sequence[float]], floor: float = 0.0) -> Noise | None:
    """The noise between the runs of cells, from the positive rates of each; None without a cell of
    two runs. `floor` is a lower bound from blocks of steps. It is the pooled variance as a sum over
    pairs of runs; a pair counts as at most LIMIT median pairs (Shamos 1976), so that one slow run
    does not widen all intervals."""
    cells = [[math.log(value) for value in group] for group in groups if len(group) > 1]
    if not cells:
        return None
    pairs = [[abs(a - b) for a, b in combinations(logs, 2)] for logs in cells]
    most = LIMIT * median(chain.from_iterable(pairs)) or math.inf
    squares, dof = 0.0, 0
    for logs, distances in zip(cells, pairs, strict=True):
        squares += sum(min(distance, most) ** 2 for distance in distances) / len(logs)
        dof += len(logs) - 1
    return Noise(max(math.sqrt(squares / dof), floor), dof, len(cells))


def median_interval(
    values: Sequence[float], confidence: float, noise: Noise | None = None
) -> Estimate:
    """Median of positive `values` with its interval. `noise` is that of all cells; None: that of
    these values. Raises ValueError for no value."""
    value, noise = median(values), noise_of(values, noise)
    if noise is None:
        return Estimate(value, None, None)
    half = critical(confidence, noise.dof) * noise.sd * math.sqrt(variance(len(values)))
    return Estimate(value, value * math.exp(-half), value * math.exp(half))


def ratio_interval(
    numerator: Sequence[float],
    denominator: Sequence[float],
    confidence: float,
    noise: Noise | None = None,
    comparisons: int = 1,
) -> Estimate:
    """Ratio of the medians of two sets of independent positive values, with its interval. `noise`
    is that of all cells; None: that of the two sets. With several `comparisons` the intervals hold
    together (Bonferroni)."""
    value = median(numerator) / median(denominator)
    noise = noise or pooled_noise([numerator, denominator])
    if noise is None:
        return Estimate(value, None, None)
    square = 0.0
    for side in (numerator, denominator):
        own = noise_of(side, noise) or noise
        square += own.sd**2 * variance(len(side))
    half = critical(confidence, noise.dof, comparisons) * math.sqrt(square)
    return Estimate(value, value * math.exp(-half), value * math.exp(half))


def noise_of(values: Sequence[float], noise: Noise | None) -> Noise | None:
    """The noise of one cell: `noise`, or with its own deviation if no majority of its runs agrees
    within that. A minority that is far off does not move the median. By chance, one of all cells
    keeps its own in 5% of the studies."""
    own = pooled_noise([values])
    if noise is None or own is None:
        return own or noise
    logs, most = sorted(map(math.log, values)), len(values) // 2
    closest = min(high - low for low, high in zip(logs, logs[most:], strict=False))
    start, slope = _AGREE[min(len(values) - 2, len(_AGREE) - 1 - len(values) % 2)]
    normal = NormalDist().inv_cdf(1 - (1 - CONFIDENCE) / 2 / noise.cells)
    student = critical(CONFIDENCE, noise.dof, noise.cells)
    limit = (start + slope * normal) * noise.sd * student / normal
    return noise if closest <= limit else noise._replace(sd=own.sd)


def assumed_noise(share: float, blocks: Iterable[float | None]) -> Noise:
    """The noise of single runs: two may differ by `share`, or as their blocks of steps show."""
    return Noise(max([share / REPEATABILITY, *(block or 0.0 for block in blocks)]), 100)


def spread(values: Sequence[float]) -> float | None:
    """Relative difference that two runs of a cell exceed in 5% of cases (repeatability limit, ISO
    5725-6), from the standard deviation between its runs; None for a single value."""
    return REPEATABILITY * stdev(map(math.log, values)) if len(values) > 1 else None


def paired_interval(
    before: Sequence[int], after: Sequence[int], of: Sequence[int]
) -> tuple[float | None, float | None]:
    """Interval of the change of a share of right answers to the same questions: of each image, how
    many of its `of` answers were right `before` and `after`. None for a single image.

    It is Wald's after two pairs are added, one half of each outcome (Agresti and Min 2005,
    doi:10.1002/sim.1781), so that it has a width if nothing changed. Answers about one image count
    as a cluster, by the variance of a ratio estimator (Cochran 1977, chapter 6)."""
    if len(of) < 2:
        return None, None
    mean = sum(of) / len(of)
    changes = [float(new - old) for old, new in zip(before, after, strict=True)]
    changes += [mean / math.sqrt(2), -mean / math.sqrt(2)]
    sizes = [*of, mean, mean]
    middle = sum(changes) / sum(sizes)
    squares = ((change - middle * size) ** 2 for change, size in zip(changes, sizes, strict=True))
    half = NormalDist().inv_cdf((1 + CONFIDENCE) / 2) * math.sqrt(sum(squares)) / sum(sizes)
    return max(middle - half, -1.0), min(middle + half, 1.0)


def variance(n: int) -> float:
    """Variance of the median of n values, over the variance of one (normal distribution)."""
    if n <= len(_VARIANCES):
        return _VARIANCES[n - 1]
    return math.pi / (2 * n + (0.9 if n % 2 else 2.7))  # within 1%


@lru_cache(maxsize=1024)
def critical(confidence: float, dof: int, comparisons: int = 1) -> float:
    """The two-sided quantile of Student's t, of Bonferroni with several `comparisons`; by bisection
    of the distribution's finite series (Abramowitz and Stegun 26.7.3 and 26.7.4)."""
    share = 1 - (1 - confidence) / max(comparisons, 1)
    low, high = 0.0, math.pi / 2
    for _ in range(60):
        angle = (low + high) / 2
        if _t_share(angle, dof) < share:
            low = angle
        else:
            high = angle
    return math.sqrt(dof) * math.tan(low)


def _t_share(angle: float, dof: int) -> float:
    """Probability that |t| is below sqrt(dof) * tan(angle)."""
    odd = dof % 2
    term = math.cos(angle) if odd else 1.0
    total = 0.0
    for k in range(1 + odd, dof, 2):
        total += term
        term *= k / (k + 1) * math.cos(angle) ** 2
    series = math.sin(angle) * total
    return (angle + series) * 2 / math.pi if odd else series


def selection_bias(noise: Noise, runs: int, among: int) -> float:
    """The share by which the best of `among` equal cells with so many runs exceeds them by noise;
    the expected largest of n values from a normal distribution is that of Blom (1958)."""
    largest = NormalDist().inv_cdf((among - 0.375) / (among + 0.25))
    return math.expm1(largest * noise.sd * math.sqrt(variance(runs)))


def noise_by_device(
    runs: Iterable[Mapping[str, Any]],
    value: Callable[[Mapping[str, Any]], float | None] = itemgetter(RATE),
    within: Callable[[Mapping[str, Any]], float | None] = lambda run: run.get(BLOCK_NOISE),
) -> Noises:
    """The noise of a value by study and device, from the ok runs among rows of results.csv; at
    least the median of the standard error `within` them, which their steps or rounds show."""
    cells: dict[tuple[str, str], dict[str, list[float]]] = {}
    blocks: dict[tuple[str, str], list[float]] = {}
    for run in runs:
        is_own = run["status"] == "ok" and not run.get("measured_as")
        measured = value(run) if is_own else None
        if measured:
            key = run["study"], run["device"]
            cells.setdefault(key, {}).setdefault(run["cell"], []).append(measured)
            blocks.setdefault(key, []).append(within(run) or 0.0)
    return {key: pooled_noise(cells[key].values(), median(blocks[key])) for key in cells}


def block_noise(times_s: Sequence[float]) -> float | None:
    """Relative standard error of a mean step time; None for too few steps. Steps that follow each
    other are alike, so blocks of them double while FEWEST_BLOCKS remain, and the largest error
    counts (Flyvbjerg and Petersen 1989)."""
    errors, blocks = [], list(times_s)
    while len(blocks) >= FEWEST_BLOCKS:
        errors.append(stdev(blocks) / fmean(blocks) / math.sqrt(len(blocks)))
        blocks = [fmean(pair) for pair in zip(blocks[::2], blocks[1::2], strict=False)]
    return max(errors, default=None)
