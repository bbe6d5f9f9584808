"""Cells put in order: lines along one factor, for measured and published numbers alike."""

import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from feedrate.config.published import Published
from feedrate.config.values import Level, level_text
from feedrate.report.rows import CellOf, CellRow, RunRow
from feedrate.report.settings import Shown
from feedrate.report.text import DASH, STATUS_WORDS, levels_text

METRIC = "samples_per_s"


@dataclass(frozen=True)
class Spot:
    """One cell of a grid; `status` is a status of a record, `absent` or `excluded`."""

    levels: dict[str, Level]
    status: str
    value: float | None = None
    low: float | None = None
    high: float | None = None
    row: CellRow | None = None

    @property
    def broke(self) -> bool:
        """Whether it was tried and has no valid number."""
        return self.value is None and self.status not in ("unsupported", "absent", "excluded")


@dataclass(frozen=True)
class Line:
    """The cells of a device that differ in one factor only."""

    device: str
    rest: dict[str, Level]
    published: bool
    spots: list[Spot] = field(default_factory=list)

    @property
    def last(self) -> float:
        """The last value along the line; call where it has one."""
        return next(s.value for s in reversed(self.spots) if s.value is not None)

    @property
    def has_numbers(self) -> bool:
        """Whether any of its cells has a value."""
        return any(spot.value is not None for spot in self.spots)


def main_factor(shown: Shown, wanted: str | None) -> str:
    """The factor along a table or figure: the one asked for, else the study's first."""
    return wanted if wanted in shown.factors else next(iter(shown.factors))


def factor_label(shown: Shown, factor: str) -> str:
    """A factor's name for people."""
    return shown.factors[factor].label or factor


def rest_text(shown: Shown, rest: dict[str, Level], always: bool = False) -> str:
    """The levels of the other factors, as far as they differ from the baseline."""
    differing = {k: v for k, v in rest.items() if always or v != shown.baseline.get(k)}
    return ", ".join(f"{k} = {level_text(v)}" for k, v in differing.items())


def measured_lines(shown: Shown, cells: Iterable[CellRow], factor: str) -> list[Line]:
    """Lines of our cells along `factor`, devices and levels in the order of the configuration."""
    known = {(cell.device, level_key(cell.levels)): cell for cell in cells}

    def spot(device: str, levels: dict[str, Level]) -> Spot:
        row = known.get((device, level_key(levels)))
        if row is None:
            able = shown.devices[device].capabilities if device in shown.devices else ()
            left_out = any(e.covers(levels, able) for e in shown.exclude)
            return Spot(levels, "excluded" if left_out else "absent")
        value = row.samples_per_s if row.status == "ok" else None
        return Spot(levels, row.status, value, row.ci_low, row.ci_high, row)

    return _lines(shown, factor, shown.measured, False, spot)


def level_key(levels: dict[str, Level]) -> str:
    """A cell's levels as a key, whatever the order of its factors."""
    return ",".join(f"{name}={level_text(levels[name])}" for name in sorted(levels))


def headline(shown: Shown) -> dict[tuple[str, str], Published]:
    """The published throughputs that comparisons use, by device and `level_key`."""
    return {
        (row.device, level_key({**shown.baseline, **row.levels})): row
        for row in shown.published
        if row.headline and row.metric == METRIC
    }


def published_lines(shown: Shown, factor: str) -> list[Line]:
    """Lines of the published numbers along `factor`, the edition that comparisons use."""
    known = headline(shown)

    def spot(device: str, levels: dict[str, Level]) -> Spot:
        row = known.get((device, level_key(levels)))
        if row is None:
            return Spot(levels, "unsupported" if lacks(shown, device, levels) else "absent")
        return Spot(levels, "ok", row.value)

    return _lines(shown, factor, dict.fromkeys(device for device, _ in known), True, spot)


def lacks(shown: Shown, device: str, levels: dict[str, Level]) -> list[str]:
    """The capabilities that a cell needs and the device lacks."""
    entry = shown.devices.get(device)
    needed = [shown.factors[k].requires.get(level_text(v)) for k, v in levels.items()]
    return [need for need in needed if need and entry and need not in entry.capabilities]


def _rests(shown: Shown, factor: str) -> list[dict[str, Level]]:
    """All combinations of the other factors, the baseline's first."""
    others = [name for name in shown.factors if name != factor]
    product = itertools.product(*(shown.factors[name].levels for name in others))
    rests = [dict(zip(others, values, strict=True)) for values in product]
    return sorted(rests, key=lambda rest: any(v != shown.baseline.get(k) for k, v in rest.items()))


def _lines(
    shown: Shown,
    factor: str,
    devices: Iterable[str],
    published: bool,
    spot: Callable[[str, dict[str, Level]], Spot],
) -> list[Line]:
    levels = shown.factors[factor].levels
    return [
        Line(device, rest, published, [spot(device, {**rest, factor: level}) for level in levels])
        for device in devices
        for rest in _rests(shown, factor)
    ]


def lacking_text(shown: Shown, device: str) -> str:
    """`Not supported on CPU: decode = device (needs device_decode)`; empty where all is."""
    if device not in shown.devices:
        return ""
    missing: dict[tuple[str, str], list[str]] = {}
    for name, factor in shown.factors.items():
        for level, need in factor.requires.items():
            if need not in shown.devices[device].capabilities:
                missing.setdefault((factor_label(shown, name), need), []).append(level)
    said = [f"{name} = {', '.join(ls)} (needs {need})" for (name, need), ls in missing.items()]
    return f"Not supported on {shown.label(device)}: {'; '.join(said)}." if said else ""


def state(line: Line, spot: Spot) -> str:
    """What stands where a cell has no number."""
    if spot.status == "unsupported":
        return "/"
    return DASH if line.published else STATUS_WORDS[spot.status]


def recommended_cell(shown: Shown, cells: Iterable[CellRow], device: str) -> CellRow | None:
    """The cell to use on a device: of the recommended ones the best, or one within its interval
    that departs less from the baseline. Of factors that no comparison crosses, the last level that
    has one."""
    chosen = [c for c in cells if c.device == device and c.recommended and c.samples_per_s]
    if not chosen:
        return None
    last = max(_apart(shown, cell) for cell in chosen)
    chosen = [cell for cell in chosen if _apart(shown, cell) == last]
    best = max(chosen, key=lambda cell: cell.samples_per_s or 0.0)
    chosen.sort(key=lambda cell: sum(v != shown.baseline.get(k) for k, v in cell.levels.items()))
    return next(cell for cell in chosen if cell is best or _overlap(cell, best))


def _apart(shown: Shown, cell: CellRow) -> list[int]:
    """Where a cell stands among the levels of the factors that no comparison crosses."""
    order = {name: [*map(level_text, shown.factors[name].levels)] for name in shown.within}
    texts = {name: level_text(cell.levels[name]) for name in shown.within}
    return [order[name].index(text) if text in order[name] else -1 for name, text in texts.items()]


def main_line(lines: Iterable[Line], cell: CellRow | None) -> Line | None:
    """The line with this cell, else the first that has a number."""
    numbered = [line for line in lines if line.has_numbers]
    for line in numbered:
        if cell and any(spot.row is cell for spot in line.spots):
            return line
    return numbered[0] if numbered else None


def _overlap(one: CellRow, other: CellRow) -> bool:
    if one.ci_high is None or other.ci_low is None:
        return False
    return one.ci_high >= other.ci_low


def repeats(runs: Iterable[RunRow], spot: Spot) -> list[float]:
    """Throughput of every good run of a cell, samples/s."""
    cell = spot.row
    return [
        run.samples_per_s
        for run in runs
        if cell
        and (run.device, run.cell) == (cell.device, cell.cell)
        and run.status == "ok"
        and run.samples_per_s
    ]


def tried(lines: Iterable[Line]) -> list[Line]:
    """The lines that have a number or a cell that was tried; the others are only named in words."""
    return [line for line in lines if any(s.row and s.status != "unsupported" for s in line.spots)]


def short_names(cells: Iterable[CellOf]) -> dict[str, str]:
    """Names of cells by what tells them apart: `workers = 2` where nothing else varies. A
    level `false` is left out where others are told: its factor is named where it is on."""
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


def unsupported_groups(cells: Iterable[CellRow]) -> dict[str, list[CellRow]]:
    """The cells that a device does not support, by cause."""
    groups: dict[str, list[CellRow]] = {}
    for cell in cells:
        if cell.status == "unsupported":
            groups.setdefault(cell.cause, []).append(cell)
    return groups


def told(shown: Shown, levels: dict[str, Level]) -> dict[str, Level]:
    """The levels worth telling: the first factor's of those that are compared, those that are
    climbed, and what differs from the baseline."""
    compared = [name for name in shown.factors if name not in shown.within]
    always = {next(iter(compared or shown.factors)), *shown.ladder}
    return {k: v for k, v in levels.items() if k in always or v != shown.baseline.get(k)}
