"""Measured throughput by the number of devices."""

from feedrate.report import text
from feedrate.report.context import PageSettings
from feedrate.report.lines import by_device_count
from feedrate.report.markup import Markup, group_row, row, table, wide_row
from feedrate.report.rows import Inputs

ORDER = 150

HEADS = ("Devices", "Measured (samples/s)", "TFLOP/s per device")


def render(settings: PageSettings, inputs: Inputs) -> Markup:
    """A group of rows for each device family and cell that was measured on several numbers of
    devices."""
    lines: list[Markup] = []
    for name, cells in by_device_count(settings, inputs.cells(settings.study)).items():
        if len(cells) > 1:
            lines.append(group_row(name, len(HEADS)))
            for count, cell in sorted(cells.items()):
                rates = text.number(cell.samples_per_s), text.number(cell.tflops_per_device, 3)
                lines.append(row(str(count), *rates, of=[cell]))
    if not lines:
        none = "No setting was measured on several numbers of devices."
        lines.append(wide_row("", none, len(HEADS)))
    return table(HEADS, lines)
