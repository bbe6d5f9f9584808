"""Training between its two ceilings: the loader with no model, and the model with no loader."""

from feedrate.report import text
from feedrate.report.gains import without_numbers
from feedrate.report.grid import factor_label
from feedrate.report.markup import Markup, el, group_row, join, row, small, table
from feedrate.report.rows import CellRow, Inputs
from feedrate.report.settings import TableSettings

_COLUMNS = (
    "Training (samples/s)",
    "Loader alone (samples/s)",
    "Model alone (samples/s)",
    "Training over the lower ceiling",
    "Waits for data",
    "Limited by",
)


def render(settings: TableSettings, inputs: Inputs) -> Markup:
    """A row a cell that was tried, with the verdict and the figures that it rests on."""
    cells = [c for c in inputs.cells(settings.study) if c.status != "unsupported"]
    if not cells:
        return el("p", "No cell was run.")
    heads = [", ".join(factor_label(settings, name) for name in settings.factors), *_COLUMNS]
    rows: list[Markup] = []
    for device in dict.fromkeys(cell.device for cell in cells):
        rows.append(group_row(settings.label(device), len(heads)))
        rows += [_row(cell, len(heads)) for cell in cells if cell.device == device]
    return table(heads, rows, "last-text")


def _row(cell: CellRow, width: int) -> Markup:
    if cell.samples_per_s is None:
        return without_numbers(cell, width)
    ceilings = [c for c in (cell.loader_samples_per_s, cell.model_samples_per_s) if c]
    return row(
        [
            text.values_text(cell.levels),
            text.number(cell.samples_per_s),
            text.number(cell.loader_samples_per_s),
            text.number(cell.model_samples_per_s),
            text.share(cell.samples_per_s / min(ceilings) if ceilings else None),
            text.share(cell.data_wait_share),
            join(cell.verdict or text.DASH, small(cell.why)),
        ],
        "use" * cell.recommended,
    )
