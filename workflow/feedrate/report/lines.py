"""Cells in the order of the study, as lines along one factor, with their names and speed-ups;
measured and published numbers alike."""

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from msgspec.structs import asdict

from feedrate.config.study import Published
from feedrate.config.values import Level, level_text
from feedrate.report.context import StudyContext
from feedrate.report.rows import CellOf, CellRow, RunRow
from feedrate.report.text import DASH, levels_text, state
from feedrate.results.comparability import Kind, compare, obstacles, short_epochs


@dataclass(frozen=True)
class Point:
    """One cell on a line; `status` is a record's status, `absent` or `excluded`."""

    levels: dict[str, Level]
    status: str
    value: float | None = None
    low: float | None = None
    high: float | None = None
    row: CellRow | None = None

    @property
    def tried(self) -> bool:
        """Whether a run of the cell was attempted."""
        return self.status not in ("unsupported", "absent", "excluded")

    @property
    def failed(self) -> bool:
        """Whether the cell was tried and has no valid number."""
        return self.tried and self.value is None


@dataclass(frozen=True)
class Line:
    """The cells of a device that differ in one factor only; `others` are the other levels."""

    device: str
    others: dict[str, Level]
    published: bool
    points: list[Point] = field(default_factory=list)

    @property
    def valid(self) -> list[Point]:
        """The points that have a value."""
        return [point for point in self.points if point.value is not None]

    @property
    def largest(self) -> Point | None:
        """The last point with a value: the largest level that fits in memory."""
        return self.valid[-1] if self.valid else None

    @property
    def fastest(self) -> Point | None:
        """The point with the highest throughput."""
        return max(self.valid, key=lambda point: point.value or 0.0, default=None)

    @property
    def best(self) -> float:
        """The highest throughput; 0 where no point has a value."""
        return max((point.value or 0.0 for point in self.valid), default=0.0)

    @property
    def out_of_memory(self) -> Point | None:
        """The first point that ran out of memory."""
        return next((point for point in self.points if point.status == "out_of_memory"), None)


def measured_lines(study: StudyContext, cells: Iterable[CellRow], factor: str) -> list[Line]:
    """Lines of the measured cells along `factor`, in the order of the configuration."""
    known = {(cell.device, level_key(cell.levels)): cell for cell in cells}

    def point(device: str, levels: dict[str, Level]) -> Point:
        row = known.get((device, level_key(levels)))
        if row is None:
            able = study.devices[device].able if device in study.devices else ()
            excluded = any(entry.covers(levels, able) for entry in study.exclude)
            return Point(levels, "excluded" if excluded else "absent")
        value = row.samples_per_s if row.status == "ok" else None
        return Point(levels, row.status, value, row.ci_low, row.ci_high, row)

    return _lines(study, factor, study.measured, False, point)


def tried_lines(study: StudyContext, cells: Iterable[CellRow], factor: str) -> list[Line]:
    """The measured lines on which the device supports at least one cell."""
    return [
        line
        for line in measured_lines(study, cells, factor)
        if any(point.row and point.status != "unsupported" for point in line.points)
    ]


def ladder_lines(
    study: StudyContext, cells: Iterable[CellRow], factor: str, device: str
) -> list[Line]:
    """The tried lines of a device along `factor`, in the order of the other factors' levels."""
    lines = [line for line in tried_lines(study, cells, factor) if line.device == device]
    order = {name: [*map(level_text, f.levels)] for name, f in study.factors.items()}
    lines.sort(key=lambda line: [order[k].index(level_text(v)) for k, v in line.others.items()])
    return lines


def at_levels(lines: Sequence[Line], keep: Callable[[Point], bool]) -> list[Line]:
    """The lines without the levels at which no line has a point to `keep`."""
    columns = zip(*(line.points for line in lines), strict=True)
    kept = [any(map(keep, points)) for points in columns]
    return [replace(line, points=list(itertools.compress(line.points, kept))) for line in lines]


def by_device_count(study: StudyContext, cells: Iterable[CellRow]) -> dict[str, dict[int, CellRow]]:
    """Cells with numbers by device family, levels and batch, then by device count."""
    groups: dict[str, dict[int, CellRow]] = {}
    for cell in cells:
        known = study.devices.get(cell.device)
        if known and cell.status == "ok" and cell.samples_per_s and cell.batch_size:
            family = study.label(known.variant_of or cell.device)
            name = f"{family}: {level_key(cell.levels)}, batch {cell.batch_size}"
            groups.setdefault(name, {})[known.count] = cell
    return groups


def published_lines(study: StudyContext, factor: str) -> list[Line]:
    """Lines of the published numbers along `factor`, from the edition that comparisons use."""
    known = published_rates(study)

    def point(device: str, levels: dict[str, Level]) -> Point:
        if row := known.get((device, level_key(levels))):
            return Point(levels, "ok", row.value)
        lacking = missing_capabilities(study, device, levels)
        return Point(levels, "unsupported" if lacking else "absent")

    lines = _lines(study, factor, dict.fromkeys(device for device, _ in known), True, point)
    return [line for line in lines if line.valid]


def published_rates(study: StudyContext) -> dict[tuple[str, str], Published]:
    """The published throughputs that comparisons use, by device and `level_key`."""
    return {
        (row.device, level_key({**study.baseline, **row.levels})): row
        for row in study.published
        if row.headline and row.metric == "samples_per_s"
    }


def first_runs(runs: Iterable[RunRow]) -> dict[tuple[str, str], RunRow]:
    """The first valid run of each cell, by device and `level_key`."""
    good = [run for run in runs if run.status == "ok"]
    return {(run.device, level_key(run.levels)): run for run in reversed(good)}


def against(study: StudyContext, row: Published, run: RunRow, kind: Kind) -> list[str]:
    """Why a run's rate cannot be compared with a published one, besides another device."""
    facts = asdict(run)
    found = compare(row, facts, study.sources)
    known = [one for one in found if one.item != "device" or row.device == run.device]
    return [*short_epochs(facts, "samples_per_s"), *obstacles(known, kind)]


def level_key(levels: dict[str, Level]) -> str:
    """A cell's levels as a key that ignores the order of the factors."""
    return ",".join(f"{name}={level_text(levels[name])}" for name in sorted(levels))


def _lines(
    study: StudyContext,
    factor: str,
    devices: Iterable[str],
    published: bool,
    point: Callable[[str, dict[str, Level]], Point],
) -> list[Line]:
    """A line for each device and combination of the other factors, the baseline's first."""
    names = [name for name in study.factors if name != factor]
    product = itertools.product(*(study.factors[name].levels for name in names))
    others = [dict(zip(names, levels, strict=True)) for levels in product]
    others.sort(key=lambda levels: bool(differing(study, levels)))
    levels = study.factors[factor].levels
    return [
        Line(device, rest, published, [point(device, {**rest, factor: level}) for level in levels])
        for device in devices
        for rest in others
    ]


def missing_capabilities(study: StudyContext, device: str, levels: dict[str, Level]) -> list[str]:
    """The capabilities that a cell needs and the device lacks."""
    entry = study.devices.get(device)
    needed = [study.factors[k].requires.get(level_text(v)) for k, v in levels.items()]
    return [need for need in needed if need and entry and need not in entry.able]


def unsupported_note(study: StudyContext, device: str) -> str:
    """`Not supported on CPU: decode = device (needs decode_device)`; empty where nothing is."""
    if device not in study.devices:
        return ""
    missing: dict[tuple[str, str], list[str]] = {}
    for name, factor in study.factors.items():
        for level, need in factor.requires.items():
            if need not in study.devices[device].able:
                missing.setdefault((name, need), []).append(level)
    parts = [f"{name} = {', '.join(ls)} (needs {need})" for (name, need), ls in missing.items()]
    return f"Not supported on {study.label(device)}: {'; '.join(parts)}." if parts else ""


# Names of cells


def differing(study: StudyContext, levels: dict[str, Level], *lines: Line) -> dict[str, Level]:
    """The levels that differ from the baseline's, or from those of another line."""
    known = (study.baseline, *(line.others for line in lines))
    return {k: v for k, v in levels.items() if any(v != one.get(k) for one in known)}


def notable(study: StudyContext, levels: dict[str, Level]) -> dict[str, Level]:
    """The levels that name a cell in a sentence: of the first factor that is compared, of the
    ladder, and those that differ from the baseline."""
    compared = [name for name in study.factors if name not in study.within]
    always = {next(iter(compared or study.factors)), *study.ladder}
    return {k: v for k, v in levels.items() if k in always or v != study.baseline.get(k)}


def line_name(study: StudyContext, line: Line, lines: Sequence[Line], *details: str) -> str:
    """The device, then `details`, then the levels that distinguish the line on the device."""
    levels = differing(study, line.others, *(one for one in lines if one.device == line.device))
    return ", ".join(filter(None, [study.label(line.device), *details, levels_text(levels)]))


def point_status(line: Line, point: Point) -> str:
    """The text in place of a missing number."""
    if line.published and point.status != "unsupported":
        return DASH
    return state(point.status, point.row.cause if point.row else "")


def short_names(cells: Iterable[CellOf]) -> dict[str, str]:
    """Names of cells by the levels that differ among them, such as `workers = 2`. A level `false`
    is omitted where other levels remain: the cells with `true` name that factor."""
    levels = {cell.cell: cell.levels for cell in cells}
    varying = [
        name
        for name in next(iter(levels.values()), {})
        if len({level_text(other.get(name, "")) for other in levels.values()}) > 1
    ]
    return {
        cell: levels_text(
            {k: v for k, v in entry.items() if k in varying and level_text(v) != "false"} or entry
        )
        for cell, entry in levels.items()
    }


# Speed-ups


class Speedup(NamedTuple):
    """A ratio of two throughputs, with its interval where repeats give one; or, in place of a
    ratio, the `reason`."""

    value: float | None = None
    low: float | None = None
    high: float | None = None
    reason: str = DASH
    cells: tuple[CellRow | None, ...] = ()  # the measured ones: numerator's and denominator's


Speedups = dict[str, list[Speedup]]
"""Speed-ups along a factor, by the name of the line."""


def baseline_speedups(study: StudyContext, cells: Sequence[CellRow], factor: str) -> Speedups:
    """Every device's cells over its own baseline: first measured, then published."""
    known = {(cell.device, level_key(cell.levels)): cell for cell in cells}

    ours, published = tried_lines(study, cells, factor), published_lines(study, factor)
    bases = {(line.device, level_key(p.levels)): p for line in published for p in line.points}

    def speedup(line: Line, point: Point) -> Speedup:
        at, row = (line.device, level_key(study.baseline_of(point.levels))), point.row
        if line.published or row is None or point.value is None:
            return _ratio(line, point, bases.get(at))
        if point.levels == study.baseline:
            return Speedup(1.0, cells=(row,))
        ends = row.speedup_ci_low, row.speedup_ci_high
        return Speedup(row.speedup, *ends, cells=(row, known.get(at)))

    return {
        line_name(study, line, group, origin): [speedup(line, point) for point in line.points]
        for origin, group in (("here", ours), ("published", published))
        for line in group
    }


def device_speedups(study: StudyContext, cells: Sequence[CellRow], factor: str) -> Speedups:
    """Device over device at equal levels, measured or published. Each pair appears once, with the
    device whose best cell is faster as the numerator."""
    ours, published = tried_lines(study, cells, factor), published_lines(study, factor)
    return {
        f"{study.label(one.device)} over {line_name(study, other, group, origin)}": [
            _ratio(one, point, base) for point, base in zip(one.points, other.points, strict=True)
        ]
        for origin, group in (("here", ours), ("published", published))
        for one, other in itertools.permutations(group, 2)
        if one.others == other.others and one.best > other.best > 0
    }


def _ratio(line: Line, point: Point, base: Point | None) -> Speedup:
    if point.value is None:
        return Speedup(reason=point_status(line, point))
    value = point.value / base.value if base and base.value else None
    return Speedup(value, cells=(point.row, base.row if base else None))
