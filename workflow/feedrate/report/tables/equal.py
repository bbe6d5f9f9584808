"""Whether a faster setting teaches the model as much: loss at the end against the reference's."""

from feedrate.report import text
from feedrate.report.gains import baseline_for, loss_shift, speed, without_numbers
from feedrate.report.grid import factor_label
from feedrate.report.markup import Markup, group_row, join, row, small, table
from feedrate.report.rows import CellRow, Inputs
from feedrate.report.settings import TableSettings

_HEADS = (
    "Throughput (samples/s)",
    "Over the baseline",
    "Loss at the end",
    "Off the baseline's",
    "What seeds do",
    "Quality",
)

UNKNOWN = "not known: it takes two repeats of each, and equal samples (no smaller last batches)"


def render(settings: TableSettings, inputs: Inputs) -> Markup:
    """A row a cell that was tried, in groups by device."""
    heads = [", ".join(factor_label(settings, name) for name in settings.factors), *_HEADS]
    cells = [cell for cell in inputs.cells(settings.study) if cell.status != "unsupported"]
    rows: list[Markup] = []
    for device in settings.measured:
        rows.append(group_row(settings.label(device), len(heads)))
        rows += [_row(settings, cell, len(heads)) for cell in cells if cell.device == device]
    return table(heads, rows, "last-text")


def _row(settings: TableSettings, cell: CellRow, width: int) -> Markup:
    if cell.samples_per_s is None:
        return without_numbers(cell, width)
    return row(
        [
            text.values_text(cell.levels),
            *speed(cell),
            join(text.number(cell.loss_end, 4), small(text.count(cell.ok_runs, "repeat"))),
            text.DASH if cell.loss_shift is None else f"{cell.loss_shift:+.3f}",
            text.DASH if cell.loss_seeds is None else f"{cell.loss_seeds:.3f}",
            _verdict(settings, cell),
        ]
    )


def _verdict(settings: TableSettings, cell: CellRow) -> str:
    if cell.levels == baseline_for(settings, cell.levels):
        return "the baseline"
    if cell.loss_shift is None:
        return UNKNOWN
    return loss_shift(cell) or "as the baseline's, as far as seeds tell"
