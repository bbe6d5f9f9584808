"""All cells of a study with their measured values, and the cells without a number."""

from urllib.parse import quote

from feedrate.core.paths import TRACE_NAME, run_dir
from feedrate.report import text
from feedrate.report.markup import COSTS, MEMORY, MFU, SPEED, Field, Markup, cell_table, el, noted
from feedrate.report.params import PageSettings
from feedrate.report.rows import CellRow, Inputs

NEEDS = ("cells",)
ORDER = 160


def _good_runs(cell: CellRow) -> Markup:
    spread = [f"spread {text.share(cell.spread)}"] if cell.spread is not None else []
    why = ", ".join([*spread, *["disturbed"] * bool(cell.disturbed)])
    return noted(f"{cell.ok_runs} of {cell.runs}", "noisy: " * cell.noisy + why)


def _trace(cell: CellRow) -> Markup:
    """A link from the table's own file to repeat 1's trace, and what the trace lacks."""
    name, _, lacks = cell.trace.partition("; ")
    path = run_dir(cell.study, cell.device, cell.measured_as or cell.cell, 1) / name
    shown = el("a", name, href=quote(f"../../../{path}")) if name == TRACE_NAME else name
    return noted(shown or text.DASH, lacks)


TRACE: dict[str, Field] = {"Trace": _trace}
COLUMNS: dict[str, Field] = {
    **SPEED,
    "Limited by": lambda cell: noted(cell.verdict or text.DASH, "use this" * cell.recommended),
    "Data-wait share": lambda cell: text.share(cell.data_wait_share),
    "Step time, median": lambda cell: text.seconds(cell.step_time_median_s),
    "Step time, 95th percentile": lambda cell: text.seconds(cell.step_time_p95_s),
    **MEMORY,
    "Pixels off (of 255)": lambda cell: text.number(cell.pixel_mean_abs_diff, 2),
    "Good runs": _good_runs,
    "The Trainer's own figure (samples/s)": lambda cell: text.number(cell.trainer_samples_per_s),
    **MFU,
    **COSTS,
    **TRACE,
}


def render(settings: PageSettings, inputs: Inputs) -> Markup:
    """All cells by device; MFU, energy and cost have columns where they are known."""
    cells = inputs.cells(settings.study)
    return cell_table(settings, cells, COLUMNS, optional=MFU | COSTS | TRACE, recommend=True)
