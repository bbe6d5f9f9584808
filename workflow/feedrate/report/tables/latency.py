"""Latency and throughput of forward passes: percentiles, speed-up and memory."""

from feedrate.report import text
from feedrate.report.context import PageSettings
from feedrate.report.markup import COSTS, MEMORY, MFU, SPEED, Field, Markup, cell_table
from feedrate.report.rows import Inputs

ORDER = 70

COLUMNS: dict[str, Field] = {
    "Latency, median (ms)": lambda cell: milliseconds(cell.step_time_median_s),
    "95th percentile (ms)": lambda cell: milliseconds(cell.step_time_p95_s),
    "99th percentile (ms)": lambda cell: milliseconds(cell.step_time_p99_s),
    **SPEED,
    "Preparing inputs": lambda cell: text.share(cell.data_wait_share),
    "First pass": lambda cell: text.seconds(cell.first_step_s),
    **MEMORY,
    **MFU,
    **COSTS,
    "Good runs": lambda cell: f"{cell.ok_runs} of {cell.runs}",
}


def render(settings: PageSettings, inputs: Inputs) -> Markup:
    """All cells by device, with the bf16 instructions of a CPU; MFU and costs where known."""
    bf16: dict[str, dict[str, None]] = {}
    for run in inputs.runs(settings.study):
        names = filter(None, run.bf16_instructions.split(";"))
        bf16.setdefault(run.device, {}).update(dict.fromkeys(names))
    headings = {d: f" (bf16 by {' and '.join(names)})" for d, names in bf16.items() if names}
    cells = inputs.cells(settings.study)
    return cell_table(settings, cells, COLUMNS, optional=MFU | COSTS, headings=headings)


def milliseconds(value_s: float | None) -> str:
    """A latency in ms with three digits."""
    return text.number(None if value_s is None else 1000 * value_s, 3)
