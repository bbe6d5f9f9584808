"""A factor climbed level by level until memory is full: how far it went, and what paid."""

from collections.abc import Sequence
from dataclasses import dataclass

from feedrate.config.base import level_text
from feedrate.report import text
from feedrate.report.grid import (
    Line,
    Spot,
    factor_label,
    measured_lines,
    recommended_cell,
    told,
    tried,
)
from feedrate.report.rows import CellRow
from feedrate.report.settings import Shown
from feedrate.train.ladder import NOT_TRIED


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
