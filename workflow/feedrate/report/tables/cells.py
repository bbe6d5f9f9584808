"""All cells of a study with their measured values, and the cells without a number."""

from collections.abc import Mapping
from urllib.parse import quote

from feedrate.core.paths import TRACE_NAME
from feedrate.report import text
from feedrate.report.context import PageSettings
from feedrate.report.markup import COSTS, MEMORY, MFU, SPEED, Field, Markup, cell_table, el, noted
from feedrate.report.rows import CellRow, Inputs, Key

ORDER = 160


def _good_runs(cell: CellRow) -> Markup:
    spread = [f"spread {text.share(cell.spread)}"] if cell.spread is not None else []
    why = ", ".join([*spread, *["disturbed"] * bool(cell.disturbed)])
    return noted(f"{cell.ok_runs} of {cell.runs}", "noisy: " * cell.noisy + why)


def _trace(folders: Mapping[Key, str]) -> Field:
    """A link from the table's own file to repeat 1's trace, and what the trace lacks. `folders`
    has the folder of that run by cell."""

    def trace(cell: CellRow) -> Markup:
        name, _, lacks = cell.trace.partition("; ")
        path = f"../../../{folders.get(cell.key, '')}/{name}"
        return noted(
            el("a", name, href=quote(path)) if name == TRACE_NAME else name or text.DASH, lacks
        )

    return trace


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
}


def render(settings: PageSettings, inputs: Inputs) -> Markup:
    """All cells by device; MFU, energy and cost have columns where they are known."""
    cells = inputs.cells(settings.study)
    folders = {run.key: run.folder for run in inputs.runs(settings.study) if run.repeat == 1}
    optional = MFU | COSTS | {"Trace": _trace(folders)}
    return cell_table(settings, cells, COLUMNS | optional, optional=optional, recommend=True)
