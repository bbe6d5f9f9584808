"""Speed with its costs and its effect: efficiency, memory, loss and the time of an epoch."""

from feedrate.report import text
from feedrate.report.context import PageSettings
from feedrate.report.markup import COSTS, MEMORY, MFU, SPEED, Field, Markup, cell_table
from feedrate.report.rows import Inputs

ORDER = 100

RETRIES: dict[str, Field] = {
    "Allocator retries": lambda cell: text.integer(cell.allocator_retries),
}
COLUMNS: dict[str, Field] = {
    **SPEED,
    "TFLOP/s per device": lambda cell: text.number(cell.tflops_per_device, 3),
    **MFU,
    **MEMORY,
    "Loss at the end": lambda cell: text.number(cell.loss_end, 4),
    **RETRIES,
    **COSTS,
}


def render(settings: PageSettings, inputs: Inputs) -> Markup:
    """All cells by device; allocator retries, energy and cost have columns where they are known."""
    columns = dict(COLUMNS)
    if samples := settings.epoch_samples:
        columns[f"Epoch of {samples:,} samples"] = lambda cell: duration(
            samples / (cell.samples_per_s or 1.0)
        )
    cells = inputs.cells(settings.study)
    return cell_table(settings, cells, columns, optional=RETRIES | COSTS)


def duration(seconds: float) -> str:
    """A long time in hours, or in days from two days on: `0.43 h`, `12.1 days`."""
    hours = seconds / 3600
    return f"{hours:.2f} h" if hours < 48 else f"{hours / 24:.1f} days"
