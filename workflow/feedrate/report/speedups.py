"""Speed-ups for a table and a figure: over a device's own baseline, and of device over device."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import permutations

from feedrate.report.grid import (
    Line,
    Spot,
    measured_lines,
    published_lines,
    rest_text,
    state,
    tried,
)
from feedrate.report.rows import CellRow
from feedrate.report.settings import Shown
from feedrate.report.text import DASH


@dataclass(frozen=True)
class Gain:
    """A ratio of two throughputs, with its interval where repeats give one; else why not."""

    word: str
    value: float | None = None
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class GainLine:
    """Gains along a factor."""

    name: str
    gains: list[Gain]


def gain_lines(shown: Shown, cells: Sequence[CellRow], factor: str) -> list[GainLine]:
    """Every device's cells over its own baseline: ours first, then the published ones."""
    ours = tried(measured_lines(shown, cells, factor))
    lines = [
        GainLine(_name(shown, line, "here"), [_own(shown, line, spot) for spot in line.spots])
        for line in ours
    ]
    theirs = [line for line in published_lines(shown, factor) if line.has_numbers]
    for line in theirs:
        base = _baseline(shown, theirs, line.device)
        gains = [_over(line, spot, base) for spot in line.spots]
        lines.append(GainLine(_name(shown, line, "published"), gains))
    return lines


def device_lines(shown: Shown, cells: Sequence[CellRow], factor: str) -> list[GainLine]:
    """Device over device at equal levels; a published number is only held to a published one.

    Each pair stands once, the faster device (by its best cell) above.
    """
    lines = []
    for group in (
        tried(measured_lines(shown, cells, factor)),
        [line for line in published_lines(shown, factor) if line.has_numbers],
    ):
        word = "published" if group and group[0].published else "here"
        for one, other in permutations(group, 2):
            if one.rest == other.rest and _best(one) > _best(other) > 0:
                gains = [_over(one, a, b) for a, b in zip(one.spots, other.spots, strict=True)]
                rest = rest_text(shown, one.rest)
                name = f"{shown.label(one.device)} over {shown.label(other.device)}, {word}"
                lines.append(GainLine(f"{name}, {rest}" if rest else name, gains))
    return lines


def _own(shown: Shown, line: Line, spot: Spot) -> Gain:
    row = spot.row
    if row is None or spot.value is None:
        return Gain(state(line, spot))
    if spot.levels == shown.baseline:
        return Gain("", 1.0)
    return Gain(DASH, row.speedup, row.speedup_ci_low, row.speedup_ci_high)


def _over(line: Line, spot: Spot, base: Spot | None) -> Gain:
    if spot.value is None:
        return Gain(state(line, spot))
    if base is None or base.value is None:
        return Gain(DASH)
    return Gain("", spot.value / base.value)


def _baseline(shown: Shown, lines: Sequence[Line], device: str) -> Spot | None:
    spots = [s for line in lines if line.device == device for s in line.spots]
    return next((s for s in spots if s.levels == shown.baseline), None)


def _best(line: Line) -> float:
    return max((s.value for s in line.spots if s.value is not None), default=0.0)


def _name(shown: Shown, line: Line, word: str) -> str:
    rest = rest_text(shown, line.rest)
    name = f"{shown.label(line.device)}, {word}"
    return f"{name}, {rest}" if rest else name
