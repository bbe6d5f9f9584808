"""Speed-ups: over a device's own baseline, and of one device over another."""

from collections.abc import Sequence
from itertools import permutations
from typing import NamedTuple

from feedrate.report import lines
from feedrate.report.lines import Line, Point
from feedrate.report.params import StudyContext
from feedrate.report.rows import CellRow
from feedrate.report.text import DASH


class Speedup(NamedTuple):
    """A ratio of two throughputs, with its interval where repeats give one; or, in place of a
    ratio, the `reason`."""

    value: float | None = None
    low: float | None = None
    high: float | None = None
    reason: str = DASH


Speedups = dict[str, list[Speedup]]
"""Speed-ups along a factor, by the name of the line."""


def baseline_speedups(study: StudyContext, cells: Sequence[CellRow], factor: str) -> Speedups:
    """Every device's cells over its own baseline: first measured, then published."""

    def measured(line: Line, point: Point) -> Speedup:
        row = point.row
        if row is None or point.value is None:
            return Speedup(reason=lines.point_status(line, point))
        if point.levels == study.baseline:
            return Speedup(1.0)
        return Speedup(row.speedup, row.speedup_ci_low, row.speedup_ci_high)

    published = lines.published_lines(study, factor)
    bases = {
        line.device: point
        for line in published
        for point in line.points
        if point.levels == study.baseline
    }
    return {
        lines.line_name(study, line, "here"): [measured(line, point) for point in line.points]
        for line in lines.tried_lines(study, cells, factor)
    } | {
        lines.line_name(study, line, "published"): [
            _ratio(line, point, bases.get(line.device)) for point in line.points
        ]
        for line in published
    }


def device_speedups(study: StudyContext, cells: Sequence[CellRow], factor: str) -> Speedups:
    """Device over device at equal levels; published numbers are compared with published ones only.

    Each pair appears once, with the device whose best cell is faster as the numerator.
    """
    measured = lines.tried_lines(study, cells, factor)
    groups = {"here": measured, "published": lines.published_lines(study, factor)}
    return {
        f"{study.label(one.device)} over {lines.line_name(study, other, origin)}": [
            _ratio(one, point, base) for point, base in zip(one.points, other.points, strict=True)
        ]
        for origin, group in groups.items()
        for one, other in permutations(group, 2)
        if one.others == other.others and one.best > other.best > 0
    }


def _ratio(line: Line, point: Point, base: Point | None) -> Speedup:
    if point.value is None:
        return Speedup(reason=lines.point_status(line, point))
    return Speedup(point.value / base.value) if base and base.value else Speedup()
