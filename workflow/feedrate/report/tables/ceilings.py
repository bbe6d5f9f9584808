"""Training throughput between its two ceilings: loader-only and model-only throughput."""

from feedrate.report import text
from feedrate.report.markup import Field, Markup, as_page, cell_table, join, small
from feedrate.report.params import PageSettings
from feedrate.report.rows import CellRow, Inputs

NEEDS = ("cells",)
ORDER = 130

COLUMNS: dict[str, Field] = {
    "Training (samples/s)": lambda cell: text.number(cell.samples_per_s),
    "Loader-only (samples/s)": lambda cell: text.number(cell.loader_samples_per_s),
    "Model-only (samples/s)": lambda cell: text.number(cell.model_samples_per_s),
    "Training / lower ceiling": lambda cell: text.share(_of_ceiling(cell)),
    "Data-wait share": lambda cell: text.share(cell.data_wait_share),
    "Limited by": lambda cell: join(cell.verdict or text.DASH, small(cell.why)),
}


@as_page
def render(settings: PageSettings, inputs: Inputs) -> Markup:
    """A row for each tried cell, with the verdict and the numbers behind it."""
    cells = [cell for cell in inputs.cells(settings.study) if cell.status != "unsupported"]
    return cell_table(settings, cells, COLUMNS, recommend=True, class_="last-text")


def _of_ceiling(cell: CellRow) -> float | None:
    ceilings = [rate for rate in (cell.loader_samples_per_s, cell.model_samples_per_s) if rate]
    return (cell.samples_per_s or 0.0) / min(ceilings) if ceilings else None
