"""A factor climbed level by level until memory is full: how far it went, and what paid."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import permutations

from feedrate.config.values import Level, level_text
from feedrate.jobs.ladder import NOT_TRIED
from feedrate.report import text
from feedrate.report.grid import (
    Line,
    Spot,
    factor_label,
    measured_lines,
    published_lines,
    recommended_cell,
    rest_text,
    state,
    told,
    tried,
)
from feedrate.report.markup import Markup, join, small, wide_row, word
from feedrate.report.rows import CellRow
from feedrate.report.settings import Shown
from feedrate.report.text import DASH


@dataclass(frozen=True)
class Climb:
    """The cells of a device that differ in the climbed factor only."""

    line: Line

    @property
    def fitting(self) -> list[Spot]:
        """The cells that trained, the smallest first."""
        return [spot for spot in self.line.spots if spot.value is not None]

    @property
    def largest(self) -> Spot | None:
        """The last one that trained."""
        return self.fitting[-1] if self.fitting else None

    @property
    def fastest(self) -> Spot | None:
        """The one of the highest throughput."""
        return max(self.fitting, key=lambda spot: spot.value or 0.0, default=None)

    @property
    def full(self) -> Spot | None:
        """The first one that ran out of memory."""
        return next((s for s in self.line.spots if s.status == "out_of_memory"), None)


def climbs(shown: Shown, cells: Sequence[CellRow], factor: str, device: str) -> list[Climb]:
    """What was tried on a device along `factor`, one climb for each of the other levels, in the
    order of the study."""
    lines = tried(measured_lines(shown, cells, factor))
    order = {name: [*map(level_text, f.levels)] for name, f in shown.factors.items()}
    lines.sort(key=lambda line: [order[k].index(level_text(v)) for k, v in line.rest.items()])
    return [Climb(line) for line in lines if line.device == device]


def reached(shown: Shown, cells: Sequence[CellRow], factor: str, device: str) -> tuple[str, str]:
    """How far a device got along `factor`, as a headline and a sentence; that is empty where no
    level fitted."""
    label = factor_label(shown, factor)
    mine = [(c, c.largest, c.fastest) for c in climbs(shown, cells, factor, device)]
    fitted = [(c, large, fast) for c, large, fast in mine if large and fast]
    if not fitted:
        return f"no {label} fitted.", ""
    order = [*map(level_text, shown.factors[factor].levels)]
    best, top, _ = max(fitted, key=lambda one: order.index(level_text(one[1].levels[factor])))
    said = "; ".join(
        f"{text.levels_text(climb.line.rest)}: up to {level_text(large.levels[factor])}, fastest "
        f"with {level_text(fast.levels[factor])} ({text.rate(fast.value)})"
        for climb, large, fast in fitted
    )
    where = text.levels_text(best.line.rest)
    return f"a {label} of {level_text(top.levels[factor])} fits ({where}).", f"{said}."


def elsewhere(shown: Shown, cells: Sequence[CellRow], device: str) -> str:
    """What is recommended at the other levels of factors that no comparison crosses."""
    best = recommended_cell(shown, cells, device)
    others = [c for c in cells if c.device == device and c.recommended and c is not best]
    if best is None or not others or not shown.within:
        return ""
    said = (
        f"{text.levels_text(told(shown, cell.levels))}, {text.rate(cell.samples_per_s)}"
        for cell in others
    )
    return f"{'; '.join(said)}."


def ran_out(shown: Shown, cells: Sequence[CellRow], device: str) -> str:
    """How many cells of a ladder ran out of memory, and how many were left out for that."""
    mine = [c for c in cells if c.device == device and c.status == "out_of_memory"]
    if not (mine and shown.ladder):
        return ""
    left_out = sum(cell.cause.startswith(NOT_TRIED) for cell in mine)
    above = f"; {left_out} that ask for no less were not tried" if left_out else ""
    return f"{text.count(len(mine) - left_out, 'cell')} ran out of it, which is a result{above}."


# Speed-ups for a table and a figure: over a device's own baseline, and of device over device.


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


# What pages say of a cell alike: what it is compared with, its speed and its gain, or why it
# has none.

Extra = tuple[str, Callable[[CellRow], str]]
"""A column that stands only where it is known of some cell: its head, and what it says of one."""
MFU: Extra = ("MFU", lambda cell: text.share(cell.mfu))
COSTS: tuple[Extra, ...] = (
    ("Energy (J/sample)", lambda cell: text.number(cell.energy_j_per_sample, 3)),
    ("USD per million samples", lambda cell: text.number(cell.usd_per_million_samples, 3)),
)


def known(extras: Iterable[Extra], cells: Sequence[CellRow]) -> list[Extra]:
    """Those that say something of any of the cells."""
    return [extra for extra in extras if any(extra[1](cell) != text.DASH for cell in cells)]


def baseline_for(shown: Shown, levels: dict[str, Level]) -> dict[str, Level]:
    """The cell that one of these levels is compared with: no comparison crosses `within`."""
    return {**shown.baseline, **{name: levels[name] for name in shown.within}}


def without_numbers(cell: CellRow, width: int) -> Markup:
    """The row of a cell that has no throughput, `width` columns wide."""
    why = join(word(text.STATUS_WORDS[cell.status]), small(cell.cause))
    return wide_row(text.values_text(cell.levels), why, width)


def speed(cell: CellRow) -> list[Markup]:
    """Throughput, and what it is over the baseline's, each with its interval; a setting that learns
    something else is flagged beside its speed."""
    gained = text.ratio_interval(cell.speedup_ci_low, cell.speedup_ci_high)
    interval = small(text.interval(cell.ci_low, cell.ci_high))
    return [
        join(text.number(cell.samples_per_s), interval, small(loss_shift(cell))),
        join(text.ratio(cell.speedup), small(gained)),
    ]


def loss_shift(cell: CellRow) -> str:
    """How far the loss departs from the baseline's, where that is more than seeds do."""
    if not cell.loss_departs or cell.loss_shift is None or cell.loss_seeds is None:
        return ""
    shift = f"{cell.loss_shift:+.3f} off the baseline's"
    return f"other quality: loss {shift}, where seeds make {cell.loss_seeds:.3f}"
