"""What pages say of a cell alike: what it is compared with, its speed and its gain, or why it has
none."""

from collections.abc import Callable, Iterable, Sequence

from feedrate.config.base import Level
from feedrate.report import text
from feedrate.report.markup import Markup, join, small, wide_row, word
from feedrate.report.rows import CellRow
from feedrate.report.settings import Shown

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
