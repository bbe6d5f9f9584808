"""Speed-ups: over a device's own baseline, and of one device over another."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import permutations

from feedrate.report.lines import (
    Line,
    Point,
    line_name,
    point_status,
    published_lines,
    tried_lines,
)
from feedrate.report.params import StudyContext
from feedrate.report.rows import CellRow
from feedrate.report.text import DASH


@dataclass(frozen=True)
class Speedup:
    """A ratio of two throughputs, with its interval where repeats give one.

    Where there is no ratio, `reason` is the text in its place.
    """

    reason: str
    value: float | None = None
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class SpeedupLine:
    """Speed-ups along a factor."""

    name: str
    speedups: list[Speedup]


def baseline_speedups(
    study: StudyContext, cells: Sequence[CellRow], factor: str
) -> list[SpeedupLine]:
    """Every device's cells over its own baseline: first measured, then published."""
    lines = [
        SpeedupLine(line_name(study, line, "here"), [_own(study, line, p) for p in line.points])
        for line in tried_lines(study, cells, factor)
    ]
    published = published_lines(study, factor)
    for line in published:
        own = [p for other in published if other.device == line.device for p in other.points]
        base = next((point for point in own if point.levels == study.baseline), None)
        ratios = [_ratio(line, point, base) for point in line.points]
        lines.append(SpeedupLine(line_name(study, line, "published"), ratios))
    return lines


def device_speedups(
    study: StudyContext, cells: Sequence[CellRow], factor: str
) -> list[SpeedupLine]:
    """Device over device at equal levels; published numbers are compared with published ones only.

    Each pair appears once, with the device whose best cell is faster as the numerator.
    """
    lines = []
    groups = {
        "here": tried_lines(study, cells, factor),
        "published": published_lines(study, factor),
    }
    for origin, group in groups.items():
        for one, other in permutations(group, 2):
            if one.others == other.others and _best(one) > _best(other) > 0:
                pairs = zip(one.points, other.points, strict=True)
                ratios = [_ratio(one, point, base) for point, base in pairs]
                name = f"{study.label(one.device)} over {line_name(study, other, origin)}"
                lines.append(SpeedupLine(name, ratios))
    return lines


def _own(study: StudyContext, line: Line, point: Point) -> Speedup:
    row = point.row
    if row is None or point.value is None:
        return Speedup(point_status(line, point))
    if point.levels == study.baseline:
        return Speedup("", 1.0)
    return Speedup(DASH, row.speedup, row.speedup_ci_low, row.speedup_ci_high)


def _ratio(line: Line, point: Point, base: Point | None) -> Speedup:
    if point.value is None:
        return Speedup(point_status(line, point))
    if base is None or base.value is None:
        return Speedup(DASH)
    return Speedup("", point.value / base.value)


def _best(line: Line) -> float:
    return (line.fastest and line.fastest.value) or 0.0
