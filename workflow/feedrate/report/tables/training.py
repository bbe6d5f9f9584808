"""Speed beside what it costs and whether it learns: efficiency, an epoch's time, memory, loss."""

from collections.abc import Sequence

from feedrate.report import text
from feedrate.report.gains import COSTS, Extra, known, speed, without_numbers
from feedrate.report.grid import factor_label, unsupported_groups
from feedrate.report.markup import Markup, group_row, join, row, small, table, wide_row, word
from feedrate.report.rows import CellRow, Inputs
from feedrate.report.settings import TableSettings

_HEADS = (
    "Throughput (samples/s)",
    "Over the baseline",
    "TFLOP/s a device",
    "MFU",
    "Peak memory (GiB)",
    "Loss at the end",
)


RETRIES: Extra = ("Allocator retries", lambda cell: text.integer(cell.allocator_retries))


def render(settings: TableSettings, inputs: Inputs) -> Markup:
    """A row a cell that was tried, in groups by device; what is not supported is counted below.

    Retries of the allocator, energy and cost have a column where any is known.
    """
    samples = settings.table.epoch_samples
    cells = inputs.cells(settings.study)
    extras = known((RETRIES, *COSTS), cells)
    first = ", ".join(factor_label(settings, name) for name in settings.factors)
    epoch = [f"Epoch of {samples:,} samples"] if samples else []
    heads = [first, *_HEADS, *(head for head, _ in extras), *epoch]
    rows: list[Markup] = []
    for device in settings.measured:
        rows.append(group_row(settings.label(device), len(heads)))
        mine = [cell for cell in cells if cell.device == device]
        rows += [
            _row(cell, samples, extras, len(heads)) for cell in mine if cell.status != "unsupported"
        ]
        if groups := unsupported_groups(mine):
            count = text.count(sum(map(len, groups.values())), "cell") + " not supported"
            causes = " ".join(
                f"{text.count(len(group), 'cell')}: {cause}" for cause, group in groups.items()
            )
            rows.append(wide_row("/", join(word(count), small(causes)), len(heads)))
    return table(heads, rows)


def _row(cell: CellRow, samples: int | None, extras: Sequence[Extra], width: int) -> Markup:
    if cell.samples_per_s is None:
        return without_numbers(cell, width)
    numbers = [
        *speed(cell),
        text.number(cell.tflops_per_device, 3),
        text.share(cell.mfu),
        text.number(cell.peak_memory_gib, 3),
        text.number(cell.loss_end, 4),
        *(said(cell) for _, said in extras),
    ]
    if samples:
        numbers.append(duration(samples / cell.samples_per_s))
    return row([text.values_text(cell.levels), *numbers])


def duration(seconds: float) -> str:
    """A long time in hours, or days from two on: `0.43 h`, `12.1 days`."""
    hours = seconds / 3600
    return f"{hours:.2f} h" if hours < 48 else f"{hours / 24:.1f} days"
