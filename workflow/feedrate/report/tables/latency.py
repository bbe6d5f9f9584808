"""Latency of forward passes beside their throughput: percentiles, gain, memory."""

from collections.abc import Sequence

from feedrate.report import text
from feedrate.report.gains import COSTS, MFU, Extra, known, speed, without_numbers
from feedrate.report.grid import factor_label, unsupported_groups
from feedrate.report.markup import Markup, group_row, join, row, small, table, wide_row, word
from feedrate.report.rows import CellRow, Inputs, RunRow
from feedrate.report.settings import TableSettings

_HEADS = (
    "Latency: median (ms)",
    "95% within (ms)",
    "99% within (ms)",
    "Throughput (samples/s)",
    "Over the baseline",
    "Preparing inputs",
    "First pass",
    "Peak memory (GiB)",
)


def render(settings: TableSettings, inputs: Inputs) -> Markup:
    """A row a cell that was tried, in groups by device; what is not supported is counted below."""
    cells, runs = inputs.cells(settings.study), inputs.runs(settings.study)
    extras = known((MFU, *COSTS), cells)
    heads = [", ".join(factor_label(settings, name) for name in settings.factors), *_HEADS]
    heads += [*(head for head, _ in extras), "Good runs"]
    rows: list[Markup] = []
    for device in settings.measured:
        rows.append(group_row(settings.label(device) + _bf16(runs, device), len(heads)))
        mine = [cell for cell in cells if cell.device == device]
        tried = [cell for cell in mine if cell.status != "unsupported"]
        rows += [_row(cell, extras, len(heads)) for cell in tried]
        for cause, group in unsupported_groups(mine).items():
            count = text.count(len(group), "cell") + " not supported"
            rows.append(wide_row("/", join(word(count), small(cause)), len(heads)))
    return table(heads, rows)


def _bf16(runs: Sequence[RunRow], device: str) -> str:
    """What a CPU multiplies in bf16 with; nothing where no run tells."""
    told = [run.bf16_instructions for run in runs if run.device == device]
    known = dict.fromkeys(name for names in told for name in names.split(";") if name)
    return f" (bf16 by {' and '.join(known)})" if known else ""


def _row(cell: CellRow, extras: Sequence[Extra], width: int) -> Markup:
    if cell.samples_per_s is None:
        return without_numbers(cell, width)
    numbers = [
        *(milliseconds(one) for one in percentiles(cell)),
        *speed(cell),
        text.share(cell.data_wait_share),
        text.seconds(cell.first_step_s),
        text.number(cell.peak_memory_gib, 3),
        *(said(cell) for _, said in extras),
        f"{cell.ok_runs} of {cell.runs}",
    ]
    return row([text.values_text(cell.levels), *numbers])


def percentiles(cell: CellRow) -> tuple[float | None, float | None, float | None]:
    """Median, 95th and 99th percentile of the passes' times, s."""
    return cell.step_time_median_s, cell.step_time_p95_s, cell.step_time_p99_s


def milliseconds(value_s: float | None) -> str:
    """A latency in ms, to three digits."""
    return text.number(None if value_s is None else 1000 * value_s, 3)
