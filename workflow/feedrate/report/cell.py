"""What tables say of a cell alike: its speed and its gain, or why it has none."""

from feedrate.report import text
from feedrate.report.markup import Markup, join, small, wide_row, word
from feedrate.report.rows import CellRow


def without_numbers(cell: CellRow, width: int) -> Markup:
    """The row of a cell that has no throughput, `width` columns wide."""
    why = join(word(text.STATUS_WORDS[cell.status]), small(cell.cause))
    return wide_row(text.values_text(cell.levels), why, width)


def speed(cell: CellRow) -> list[Markup]:
    """Throughput, and what it is over the baseline's, each with its interval."""
    gained = text.ratio_interval(cell.speedup_ci_low, cell.speedup_ci_high)
    return [
        join(text.number(cell.samples_per_s), small(text.interval(cell.ci_low, cell.ci_high))),
        join(text.ratio(cell.speedup), small(gained)),
    ]
