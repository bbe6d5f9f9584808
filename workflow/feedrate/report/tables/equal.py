"""The loss at the end and the baseline's: a warning where a faster setting learns differently."""

from feedrate.report import text
from feedrate.report.context import PageSettings
from feedrate.report.markup import SPEED, Field, Markup, cell_table, loss_flag, noted
from feedrate.report.rows import CellRow, Inputs

ORDER = 40


def render(settings: PageSettings, inputs: Inputs) -> Markup:
    """A row for each cell, by device."""

    def reading(cell: CellRow) -> str:
        if cell.levels == settings.baseline_of(cell.levels):
            return "the baseline"
        if cell.loss_shift is None:
            needed = "two repeats of both cells that train the same losses on as many samples"
            return f"unknown: this needs {needed} (no smaller last batches)"
        if cell.loss_identical:
            return "equal bit for bit, because the batches are the same: says nothing about quality"
        return loss_flag(cell) or "differs by no more than seeds do: not shown to be equal"

    columns: dict[str, Field] = {
        **SPEED,
        "Loss at the end": lambda cell: noted(
            text.number(cell.loss_end, 4), text.counted(cell.ok_runs, "repeat")
        ),
        "Difference from the baseline": lambda cell: _signed(cell.loss_shift, "+"),
        "Effect of seeds": lambda cell: _signed(cell.loss_seeds),
        "Meaning": reading,
    }
    return cell_table(settings, inputs.tried(settings.study), columns, class_="last-text")


def _signed(value: float | None, sign: str = "") -> str:
    return text.DASH if value is None else f"{value:{sign}.3f}"
