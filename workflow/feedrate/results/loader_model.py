"""A model of training with a data loader: two constants, fitted to published rates and to ours.

With no worker the loader is serial: a sample takes Tc + Td. With w workers loading and computing
run in parallel: a sample takes max(Tc, Td / w). Tc is the device's time for a sample, Td one
worker's. The model ignores that workers and model share cores, and the cost of processes.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Literal, NamedTuple

from feedrate.config.values import cell_name, level_text
from feedrate.results.columns import CELLS, FIT, for_studies
from feedrate.results.files import Row, read_csv, write_result
from feedrate.results.params import FitSettings, PublishedStudy, computes_the_same
from feedrate.results.statistics import CONFIDENCE, assumed_noise, median_interval, rate_text

HERE = "here"
POOR_FIT = 0.10
"""A fit whose largest residual is above this share omits an effect."""
AGREES = 1.5
"""Factor by which a fitted constant may differ from the one measured alone."""
CONSTANTS = 2
"""Tc and Td: so many points are explained exactly, whatever they are."""

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
    """The constants, and the points that they explain; its lists are in the order of the points."""

    tc_s: float
    td_s: float
    points: Sequence[Point]

    @property
    def residuals(self) -> list[float]:
        """Predicted over measured rates, less 1."""
        return [predict(w, self.tc_s, self.td_s) / rate - 1 for w, rate in self.points]

    @property
    def max_error(self) -> float:
        """The largest residual without its sign, as a share of the rate."""
        return max(map(abs, self.residuals))

    @property
    def bounds(self) -> list[Bound]:
        """The terms that set the rates."""
        return [bound(workers, self.tc_s, self.td_s) for workers, _ in self.points]

    @property
    def r2(self) -> float | None:
        """1 - residual over total sum of squares; None where the rates do not differ."""
        mean = sum(rate for _, rate in self.points) / len(self.points)
        total = sum((rate - mean) ** 2 for _, rate in self.points)
        rest = sum((rate - predict(w, self.tc_s, self.td_s)) ** 2 for w, rate in self.points)
        return 1 - rest / total if total > 1e-12 * mean**2 else None


def predict(workers: int, tc_s: float, td_s: float) -> float:
    """Samples/s of one device: 1 / (Tc + Td) with no worker, else min(1 / Tc, w / Td)."""
    return 1 / (tc_s + td_s) if workers == 0 else 1 / max(tc_s, td_s / workers)


def bound(workers: int, tc_s: float, td_s: float) -> Bound:
    """The term that sets the rate."""
    if workers == 0:
        return "serial"
    return "compute" if tc_s >= td_s / workers else "loader"


def fit(points: Sequence[Point]) -> Fit | None:
    """The constants with the least squares of relative errors (of log rates); None unless there are
    rates with workers and without, which separate Tc from Td, all above 0. Only Td / Tc is searched
    for; the best Tc for a ratio is a mean."""
    with_workers = {point.workers > 0 for point in points}
    if with_workers != {True, False} or any(p.samples_per_s <= 0 for p in points):
        return None
    times = [(p.workers, -math.log(p.samples_per_s)) for p in points]

    def log_tcs(log_ratio: float) -> list[float]:
        ratio = math.exp(log_ratio)
        return [time + math.log(predict(workers, 1.0, ratio)) for workers, time in times]

    def loss(log_ratio: float) -> float:
        found = log_tcs(log_ratio)
        mean = sum(found) / len(found)
        return sum((one - mean) ** 2 for one in found)

    limit = math.log(_SPAN)
    # The loss has a kink where loading with w workers begins to limit: at Td / Tc = w.
    kinks = sorted({math.log(w) for w, _ in times if 0 < w < _SPAN})
    log_ratio = _minimum(loss, [-limit, *kinks, limit])
    tc_s = math.exp(sum(log_tcs(log_ratio)) / len(points))
    return Fit(tc_s, tc_s * math.exp(log_ratio), points)


def _minimum(function: Callable[[float], float], edges: Sequence[float]) -> float:
    """Where `function`, smooth between `edges`, is least."""
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


class Series(NamedTuple):
    """The cells of one device that differ only in their workers."""

    origin: str
    device: str
    world_size: int
    cells: list[Row]
    points: list[Point]
    fastest: float
    """The highest rate that cells which compute the same certainly reach, however they load,
    samples/s: the largest of the lower ends of their intervals."""


def fit_loader_model(cells: Path, settings: FitSettings, out: Path) -> None:
    """Fit the loader model to the published rates and to ours; `out` is fit.csv."""
    columns = for_studies(FIT, settings.studies)
    write_result(out, columns, fit_rows(read_csv(cells, CELLS), settings))


def fit_rows(cells: Sequence[Row], settings: FitSettings) -> list[Row]:
    """The rows of fit.csv; `cells` are the rows of cells.csv."""
    rows: list[Row] = []
    for name, study in settings.studies.items():
        own = [cell for cell in cells if cell["study"] == name and cell["status"] == "ok"]
        series = list(_series(study, [*_published(study), *_ours(study, own)]))
        for one in series:
            if fitted := fit(one.points):
                label = settings.labels.get(one.device, one.device)
                told = _rows(one, fitted, _apart(one, series, study), label)
                rows += [{"study": name, **row} for row in told]
    return rows


def is_conclusive(series: Series, fitted: Fit) -> bool:
    """Whether a fit allows a conclusion: it explains more points than constants, none badly; no
    cell that computes the same exceeds its limit 1 / Tc; no verdict or ceiling contradicts it."""
    limit = series.world_size / fitted.tc_s * (1 + 1e-6)  # for rounding
    explains = len(series.cells) > CONSTANTS and fitted.max_error <= POOR_FIT
    loading = ("input-bound", "core-bound", "mixed", "undecided")
    agree = {"compute": ("compute-bound",), "loader": loading}
    both = zip(fitted.bounds, (cell.get("verdict") for cell in series.cells), strict=True)
    denied = any(verdict and one in agree and verdict not in agree[one] for one, verdict in both)
    constants = zip((fitted.tc_s, fitted.td_s), _ceilings(series), strict=True)
    measured = all(1 / AGREES <= own / known <= AGREES for own, known in constants if known)
    return explains and series.fastest <= limit and not denied and measured


def reading(device: str, fitted: Fit, basis: str) -> str:
    """The meaning of a conclusive fit in words; `basis` qualifies the rates."""
    workers = [point.workers for point in fitted.points]
    both = zip(workers, fitted.bounds, strict=True)
    free = min((count for count, term in both if term == "compute"), default=None)
    if free is None:
        limit = f"Loading limits {device} at every worker count tried (up to {max(workers)})"
    else:
        can, takes = free / fitted.td_s, 1 / fitted.tc_s
        limit = (
            f"With {free} or more workers per rank, {device} looks compute-bound: "
            f"the loader could deliver {rate_text(can, 3)} samples/s, and the device's fitted "
            f"limit is {rate_text(takes, 3)}"
        )
    return (
        f"{limit}. Without workers, loading adds {fitted.td_s * 1e3:.3g} ms to each sample. "
        f"Two constants explain the {len(workers)} rates within {fitted.max_error:.1%}{basis}."
    )


def _rows(series: Series, fitted: Fit, apart: str, label: str) -> Iterator[Row]:
    ranks, (tc_s, td_s) = series.world_size, _ceilings(series)
    called = f"{label} ({apart})" if apart else label
    conclusive = is_conclusive(series, fitted)
    single = series.origin == HERE and any(cell["ci_low"] is None for cell in series.cells)
    basis = ", from single runs" * single
    common = {
        "origin": series.origin,
        "device": series.device,
        "series": apart,
        "world_size": ranks,
        "tc_s": fitted.tc_s,
        "td_s": fitted.td_s,
        "r2": fitted.r2,
        "max_error": fitted.max_error,
        "tc_measured_s": tc_s,
        "td_measured_s": td_s,
        "reading": reading(called, fitted, basis) if conclusive else "",
    }
    lists = fitted.points, fitted.residuals, fitted.bounds
    for cell, (workers, _), residual, term in zip(series.cells, *lists, strict=True):
        loader, unfitted = cell.get("loader_samples_per_s"), None
        if tc_s and loader:
            alternating = predict(0, tc_s, ranks / loader) * ranks
            unfitted = min(ranks / tc_s, loader) if workers else alternating
        own = {
            "loader_workers": workers,
            "predicted": predict(workers, fitted.tc_s, fitted.td_s) * ranks,
            "residual": residual,
            "bound": term if conclusive else "",
            "predicted_from_ceilings": unfitted,
            "ceiling_residual": unfitted and unfitted / cell["samples_per_s"] - 1,
        }
        yield cell | common | own


def _ceilings(series: Series) -> tuple[float | None, float | None]:
    """Tc from the model alone (median of the cells), Td from the loader alone with no worker, s."""
    rates = [cell.get("model_samples_per_s") for cell in series.cells]
    models = [series.world_size / rate for rate in rates if rate]
    loader = series.cells[0].get("loader_samples_per_s")  # with no worker: each fit has such a cell
    tc_s = median(models) if models else None
    return tc_s, series.world_size / loader if loader else None


Placed = tuple[tuple[str, str, int], Row]
"""A cell with its origin, device and world size."""


def _published(study: PublishedStudy) -> Iterator[Placed]:
    """Headline rows. A row that names no level belongs to no cell."""
    for row in study.published:
        if row.headline and row.metric == "samples_per_s" and row.levels:
            levels = study.levels_of(row)
            cell = {"cell": cell_name(levels), "samples_per_s": row.value, **levels}
            yield (f"published {row.edition}", row.device, row.count), cell


def _ours(study: PublishedStudy, cells: Iterable[Row]) -> Iterator[Placed]:
    """Ok cells, without the parts that are not ceilings (`below_rate`)."""
    names = ("cell", "verdict", "samples_per_s", "ci_low", *study.factors)
    for cell in cells:
        above = {"loader", "model"}.difference((cell.get("below_rate") or "").split(";"))
        ceilings = [f"{part}_samples_per_s" for part in sorted(above)]
        known = {one: cell.get(one) for one in (*names, *ceilings)}
        noise = assumed_noise(study.noise_share, [cell.get("block_noise")])
        likely = median_interval([cell["samples_per_s"]], CONFIDENCE, noise)
        known["least"] = cell["ci_low"] or likely.low
        yield (HERE, cell["device"], cell["world_size"] or 1), known


def _series(study: PublishedStudy, placed: Iterable[Placed]) -> Iterator[Series]:
    """One for all cells that differ only in their workers. Cells that decode on the device are left
    out: they have no workers for the model to count."""
    if (factor := study.workers_factor) is None:
        return
    origins: dict[tuple[str, str, int], list[Row]] = {}
    for key, cell in placed:
        origins.setdefault(key, []).append(cell)
    for key, cells in origins.items():
        groups: dict[str, list[Row]] = {}
        for cell in cells:
            if not study.decodes_on_device(key[1], cell):
                others = cell_name({f: cell[f] for f in study.factors if f != factor})
                groups.setdefault(others, []).append(cell)
        for group in groups.values():
            alike = [c for c in cells if computes_the_same(study.factors, c, group[0])]
            fastest = max(c.get("least") or c["samples_per_s"] for c in alike)
            ordered = sorted(group, key=lambda cell: cell[factor])
            # Rates of one device, since the ranks work in parallel.
            points = [Point(cell[factor], cell["samples_per_s"] / key[2]) for cell in ordered]
            yield Series(*key, ordered, points, fastest)


def _apart(series: Series, others: Iterable[Series], study: PublishedStudy) -> str:
    """The words that distinguish a series from the others of its device and origin."""
    alike = [s for s in others if (s.origin, s.device) == (series.origin, series.device)]
    words = [
        f"{f} = {level_text(series.cells[0][f])}"
        for f in study.factors
        if f != study.workers_factor and len({level_text(s.cells[0][f]) for s in alike}) > 1
    ]
    if len({other.world_size for other in alike}) > 1:
        words.append(f"{series.world_size} devices")
    return ", ".join(words)
