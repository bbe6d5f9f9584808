"""A model of training with a data loader that has two constants, and its fit to measured rates.

With no worker the loader is serial: a sample takes Tc + Td. With w workers loading and computing
run in parallel: a sample takes max(Tc, Td / w). Tc is the device's time for a sample, Td one
worker's. The model ignores that workers and model share cores, and the cost of processes.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Literal, NamedTuple

Bound = Literal["serial", "compute", "loader"]

_SPAN = 1e4
"""Td / Tc is searched for from 1 / _SPAN to _SPAN."""
_COARSE = 100
"""Steps of the grid between two kinks."""
_GOLDEN = (math.sqrt(5) - 1) / 2


class Point(NamedTuple):
    """A measured rate of one device at a number of workers."""

    workers: int
    samples_per_s: float


class Fit(NamedTuple):
    """The constants, and how well they explain the points (predictions in their order)."""

    tc_s: float
    td_s: float
    predicted: list[float]
    residuals: list[float]
    r2: float | None

    @property
    def max_error(self) -> float:
        """The largest residual without its sign, as a share of the rate."""
        return max(abs(residual) for residual in self.residuals)


def predict(workers: int, tc_s: float, td_s: float) -> float:
    """Samples/s of one device: 1 / (Tc + Td) with no worker, else min(1 / Tc, w / Td)."""
    return 1 / (tc_s + td_s) if workers == 0 else 1 / max(tc_s, td_s / workers)


def bound(workers: int, tc_s: float, td_s: float) -> Bound:
    """The term that sets the rate."""
    if workers == 0:
        return "serial"
    return "compute" if tc_s >= td_s / workers else "loader"


def fit(points: Sequence[Point]) -> Fit | None:
    """The constants with the least squares of relative errors (of log rates).

    None unless there is a rate without workers and one with workers: otherwise Tc and Td cannot be
    separated. Only their ratio is searched for; the best Tc for a ratio is a mean.
    """
    with_workers = {point.workers > 0 for point in points}
    if with_workers != {True, False} or any(p.samples_per_s <= 0 for p in points):
        return None
    times = [-math.log(p.samples_per_s) for p in points]
    shapes = [p.workers for p in points]

    def log_tc(log_ratio: float) -> float:
        ratio = math.exp(log_ratio)
        return sum(
            t + math.log(predict(w, 1.0, ratio)) for t, w in zip(times, shapes, strict=True)
        ) / len(times)

    def loss(log_ratio: float) -> float:
        ratio, tc = math.exp(log_ratio), log_tc(log_ratio)
        return sum(
            (t + math.log(predict(w, 1.0, ratio)) - tc) ** 2
            for t, w in zip(times, shapes, strict=True)
        )

    limit = math.log(_SPAN)
    # The loss has a kink where loading with w workers begins to limit: at Td / Tc = w.
    kinks = sorted({math.log(w) for w in shapes if 0 < w < _SPAN})
    log_ratio = _minimum(loss, [-limit, *kinks, limit])
    tc_s = math.exp(log_tc(log_ratio))
    td_s = tc_s * math.exp(log_ratio)
    predicted = [predict(p.workers, tc_s, td_s) for p in points]
    residuals = [value / p.samples_per_s - 1 for value, p in zip(predicted, points, strict=True)]
    return Fit(tc_s, td_s, predicted, residuals, _r2([p.samples_per_s for p in points], predicted))


def _minimum(function: Callable[[float], float], edges: Sequence[float]) -> float:
    """Where `function`, smooth between `edges`, is least from the first edge to the last."""
    found = [x for low, high in pairwise(edges) for x in _minima(function, low, high)]
    # Where workers make things slower, both ends of the range explain that equally badly. Because
    # of the rounding the first one wins, where loading costs nothing.
    return min(found, key=lambda x: round(function(x), 9))


def _minima(function: Callable[[float], float], low: float, high: float) -> Iterator[float]:
    """The least of each valley from `low` to `high`: a grid, then a golden section."""
    grid = [low + i * (high - low) / _COARSE for i in range(_COARSE + 1)]
    heights = [math.inf, *(round(function(x), 9) for x in grid), math.inf]
    for i, (before, here, after) in enumerate(zip(heights, heights[1:], heights[2:], strict=False)):
        if here < before and here <= after:
            ends = grid[max(i - 1, 0)], grid[min(i + 1, _COARSE)]
            yield _golden_section(function, *ends)


def _golden_section(function: Callable[[float], float], low: float, high: float) -> float:
    """Where `function`, which has one valley from `low` to `high`, is least."""
    for _ in range(80):
        inner, outer = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
        if function(inner) <= function(outer):
            high = outer
        else:
            low = inner
    return (low + high) / 2


def _r2(observed: Sequence[float], predicted: Sequence[float]) -> float | None:
    """1 - residual over total sum of squares; None where the rates do not differ."""
    mean = sum(observed) / len(observed)
    total = sum((value - mean) ** 2 for value in observed)
    rest = sum((a - b) ** 2 for a, b in zip(observed, predicted, strict=True))
    return 1 - rest / total if total > 1e-12 * mean**2 else None


class Scaling(NamedTuple):
    """A model of a step's time on n devices: computing, then one all-reduce (constants in s).

    step(n) = c + a (n - 1) / n, with a = 2 bytes / bandwidth: a ring all-reduce sends 2 (n - 1) / n
    times the gradients' bytes over each device's link (Patarasuk and Yuan 2009). Both constants are
    measured, not fitted: the model alone, and the exchange alone. Loading, exchange that overlaps
    with computing, slower links between hosts and stragglers are not in the model. Its efficiency
    cannot fall below c / (c + a), whatever is true; its error on counts whose parts it does not use
    shows how far it holds.
    """

    compute_s: float
    exchange_s: float

    def step_s(self, count: int) -> float:
        """Time of a step on so many devices."""
        return self.compute_s + self.exchange_s * (count - 1) / count


def scaling(count: int, compute_s: float, exchange_s: float) -> Scaling:
    """From a measurement on `count` devices (at least two): the computing of a step without
    exchange, and its exchange without computing, s."""
    return Scaling(compute_s, exchange_s * count / (count - 1))


def held_out_errors(
    models: Mapping[int, Scaling], steps_s: Mapping[int, float]
) -> dict[int, float]:
    """The relative error of the modelled rate at each measured number of devices, from the parts
    that were measured at the largest other number; without one there is no error.

    `models` and `steps_s` (measured, s) are by number of devices.
    """
    errors = {}
    for count, step_s in steps_s.items():
        if others := [n for n in models if n != count]:
            errors[count] = step_s / models[max(others)].step_s(count) - 1
    return errors
