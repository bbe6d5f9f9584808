"""All cells of a study with their measured values, and the cells without a number."""

from feedrate.report import text
from feedrate.report.markup import (
    COSTS,
    MEMORY,
    MFU,
    SPEED,
    Field,
    Markup,
    as_page,
    cell_table,
    join,
    small,
)
from feedrate.report.params import PageSettings
from feedrate.report.rows import CellRow, Inputs

NEEDS = ("cells",)
ORDER = 160


def _good_runs(cell: CellRow) -> Markup:
    spread = f"spread {text.share(cell.spread)}" if cell.spread is not None else ""
    return join(f"{cell.ok_runs} of {cell.runs}", small("noisy: " * cell.noisy + spread))


COLUMNS: dict[str, Field] = {
    **SPEED,
    "Limited by": lambda cell: join(
        cell.verdict or text.DASH, small("use this" * cell.recommended)
    ),
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


@as_page
def render(settings: PageSettings, inputs: Inputs) -> Markup:
    """All cells by device; MFU, energy and cost have columns where they are known."""
    cells = inputs.cells(settings.study)
    return cell_table(settings, cells, COLUMNS, optional=MFU | COSTS, recommend=True)
