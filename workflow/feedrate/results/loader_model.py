"""Fits a loader model with two constants to published rates and to ours."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple

from feedrate.config.values import cell_name, level_text
from feedrate.results.columns import CELLS, FIT, for_studies
from feedrate.results.fitting import Fit, Point, bound, fit, predict
from feedrate.results.recommendation import assumed_noise
from feedrate.results.settings import FitSettings, PublishedStudy, computes_the_same
from feedrate.results.statistics import CONFIDENCE, median_interval
from feedrate.results.tables import Row, read_csv, write_result

HERE = "here"
POOR_FIT = 0.10
"""A fit whose largest residual is above this share omits an effect."""
CONSTANTS = 2
"""Tc and Td: so many points are explained exactly, whatever they are."""


class Series(NamedTuple):
    """The cells of one device that differ only in their workers."""

    study: str
    origin: str
    device: str
    world_size: int
    workers_factor: str
    cells: list[Row]
    fastest: float
    """The rate that cells which compute the same reach at least, however they load, samples/s: by
    the lower ends of their intervals."""
    apart: str = ""
    """The words that distinguish it from the other fitted series of its device."""

    def called(self, labels: Mapping[str, str]) -> str:
        """Its name for people: `CPU`, or `CPU (decode = device)` where the device has several."""
        label = labels.get(self.device, self.device)
        return f"{label} ({self.apart})" if self.apart else label

    def points(self) -> list[Point]:
        """Rates of one device, since the ranks work in parallel."""
        return [
            Point(cell[self.workers_factor], cell["samples_per_s"] / self.world_size)
            for cell in self.cells
        ]


def fit_loader_model(cells: Path, settings: FitSettings, out: Path) -> None:
    """Fit the loader model to the published rates and to ours; `out` is fit.csv."""
    rows = fit_rows(read_csv(cells, CELLS), settings)
    write_result(out, for_studies(FIT, settings.studies), rows)


def fit_rows(cells: Sequence[Row], settings: FitSettings) -> list[Row]:
    """The rows of fit.csv; `cells` are the rows of cells.csv."""
    rows: list[Row] = []
    for name, study in settings.studies.items():
        if study.workers_factor is None:
            continue
        for origins in (_published(study), _ours(name, study, cells)):
            series = list(_series(name, study, study.workers_factor, origins))
            fitted = [(s, f) for s in series if (f := fit(s.points()))]
            named = [(_set_apart(s, fitted, study), f) for s, f in fitted]
            rows += [row for s, f in named for row in _rows(s, f, s.called(settings.labels))]
    return rows


def is_conclusive(series: Series, fitted: Fit) -> bool:
    """Whether a fit allows a conclusion: it explains more points than it has constants, none of
    them poorly; no cell that computes the same is faster than its limit 1 / Tc; and no verdict
    contradicts it where it calls a cell compute-bound."""
    limit = series.world_size / fitted.tc_s * (1 + 1e-6)  # for rounding
    explains = len(series.cells) > CONSTANTS and fitted.max_error <= POOR_FIT
    bounds = [bound(p.workers, fitted.tc_s, fitted.td_s) for p in series.points()]
    verdicts = [cell.get("verdict") for cell in series.cells]
    denied = any(
        one == "compute" and verdict not in (None, "", "compute-bound")
        for one, verdict in zip(bounds, verdicts, strict=True)
    )
    return explains and series.fastest <= limit and not denied


def reading(device: str, fitted: Fit, points: Sequence[Point], basis: str = "") -> str:
    """The meaning of a conclusive fit in words; `basis` qualifies the rates."""
    bounds = {p.workers: bound(p.workers, fitted.tc_s, fitted.td_s) for p in points}
    free = min((workers for workers, term in bounds.items() if term == "compute"), default=None)
    if free is None:
        limit = f"Loading limits {device} at every worker count tried (up to {max(bounds)})"
    else:
        can, takes = free / fitted.td_s, 1 / fitted.tc_s
        limit = (
            f"From {free} worker{'s' * (free != 1)} per rank on, {device} looks compute-bound: "
            f"the loader could deliver {_rate(can)} samples/s, and the device's fitted limit is "
            f"{_rate(takes)}"
        )
    return (
        f"{limit}. Without workers, loading adds {fitted.td_s * 1e3:.3g} ms to each sample. "
        f"Two constants explain the {len(points)} rates within {fitted.max_error:.1%}{basis}."
    )


def _rows(series: Series, fitted: Fit, called: str) -> Iterator[Row]:
    points, ranks = series.points(), series.world_size
    tc_s, td_s = _ceilings(series)
    conclusive = is_conclusive(series, fitted)
    single = series.origin == HERE and any(cell["ci_low"] is None for cell in series.cells)
    basis = ", from single runs" * single
    common = {
        "study": series.study,
        "origin": series.origin,
        "device": series.device,
        "series": series.apart,
        "world_size": ranks,
        "tc_s": fitted.tc_s,
        "td_s": fitted.td_s,
        "r2": fitted.r2,
        "max_error": fitted.max_error,
        "tc_measured_s": tc_s,
        "td_measured_s": td_s,
        "reading": reading(called, fitted, points, basis) if conclusive else "",
    }
    for cell, point, predicted, residual in zip(
        series.cells, points, fitted.predicted, fitted.residuals, strict=True
    ):
        unfitted = _from_ceilings(cell, point.workers, tc_s, td_s, ranks)
        own = {
            "loader_workers": point.workers,
            "predicted": predicted * ranks,
            "residual": residual,
            "bound": bound(point.workers, fitted.tc_s, fitted.td_s) if conclusive else "",
            "predicted_from_ceilings": unfitted,
            "ceiling_residual": unfitted and unfitted / cell["samples_per_s"] - 1,
        }
        yield cell | common | own


def _ceilings(series: Series) -> tuple[float | None, float | None]:
    """Tc from the model alone (median of the cells), Td from the loader alone with no worker, s."""
    rates = [cell.get("model_samples_per_s") for cell in series.cells]
    models = [series.world_size / rate for rate in rates if rate]
    serial = next((c for c in series.cells if c[series.workers_factor] == 0), {})
    loader = serial.get("loader_samples_per_s")
    tc_s = median(models) if models else None
    return tc_s, series.world_size / loader if loader else None


def _from_ceilings(
    cell: Row, workers: int, tc_s: float | None, td_s: float | None, count: int
) -> float | None:
    """The prediction of the model with the measured ceilings as constants."""
    if tc_s is None:
        return None
    if workers == 0:
        return None if td_s is None else predict(0, tc_s, td_s) * count
    loader = cell.get("loader_samples_per_s")
    return min(count / tc_s, loader) if loader else None


Origins = dict[tuple[str, str, int], list[Row]]
"""Cells by origin, device and world size."""


def _published(study: PublishedStudy) -> Origins:
    """Headline rows. A row that names no level belongs to no cell."""
    found: Origins = {}
    for row in study.published:
        if row.headline and row.metric == "samples_per_s" and row.levels:
            levels = study.levels_of(row)
            cell = {"cell": cell_name(levels), "samples_per_s": row.value, **levels}
            key = (f"published {row.edition}", row.device, row.count)
            found.setdefault(key, []).append(cell)
    return found


def _ours(name: str, study: PublishedStudy, cells: Iterable[Row]) -> Origins:
    """Ok cells, without the parts that are not ceilings (`below_rate`)."""
    names = ("cell", "verdict", "samples_per_s", "ci_low", *study.factors)
    share = study.noise_share
    found: Origins = {}
    for cell in cells:
        if cell["study"] == name and cell["status"] == "ok":
            key = (HERE, cell["device"], cell["world_size"] or 1)
            above = {"loader", "model"}.difference((cell.get("below_rate") or "").split(";"))
            ceilings = [f"{part}_samples_per_s" for part in sorted(above)]
            known = {one: cell.get(one) for one in (*names, *ceilings)}
            noise = assumed_noise(share, [cell.get("block_noise")])
            likely = median_interval([cell["samples_per_s"]], CONFIDENCE, noise)
            found.setdefault(key, []).append(known | {"least": cell["ci_low"] or likely.low})
    return found


def _series(name: str, study: PublishedStudy, factor: str, origins: Origins) -> Iterator[Series]:
    """One for all cells that differ only in their workers. Cells that decode on the device are left
    out: they have no workers for the model to count."""
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
            yield Series(name, *key, factor, ordered, fastest)


def _set_apart(
    series: Series, fitted: Iterable[tuple[Series, Fit]], study: PublishedStudy
) -> Series:
    """`series`, with the words that distinguish it from the others of its device and origin."""
    alike = [s for s, _ in fitted if (s.origin, s.device) == (series.origin, series.device)]
    words = [
        f"{f} = {level_text(series.cells[0][f])}"
        for f in study.factors
        if f != series.workers_factor
        and len({level_text(other.cells[0][f]) for other in alike}) > 1
    ]
    if len({other.world_size for other in alike}) > 1:
        words.append(f"{series.world_size} devices")
    return series._replace(apart=", ".join(words))


def _rate(samples_per_s: float) -> str:
    """With three digits, never as a power of ten."""
    return f"{samples_per_s:.3g}" if samples_per_s < 1000 else f"{samples_per_s:,.0f}"
