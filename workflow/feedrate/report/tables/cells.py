"""All cells of a study with what was measured in each, and those that have no number."""

from collections.abc import Sequence

from feedrate.report import text
from feedrate.report.gains import COSTS, MFU, Extra, known, speed, without_numbers
from feedrate.report.grid import factor_label, unsupported_groups
from feedrate.report.markup import Markup, group_row, join, row, small, table, wide_row, word
from feedrate.report.rows import CellRow, Inputs
from feedrate.report.settings import TableSettings

_COLUMNS = (
    "Throughput (samples/s)",
    "Over the baseline",
    "Limited by",
    "Waits for data",
    "Step: median",
    "95% of steps within",
    "Peak memory (GiB)",
    "Pixels off (of 255)",
    "Good runs",
    "The Trainer's own figure (samples/s)",
)


def render(settings: TableSettings, inputs: Inputs) -> Markup:
    """A group of rows a device; cells that it does not support stand together at its end."""
    cells = inputs.cells(settings.study)
    extras = known((MFU, *COSTS), cells)
    first = ", ".join(factor_label(settings, name) for name in settings.factors)
    heads = [first, *_COLUMNS, *(head for head, _ in extras)]
    rows: list[Markup] = []
    for device in settings.measured:
        rows.append(group_row(settings.label(device), len(heads)))
        mine = [cell for cell in cells if cell.device == device]
        tried = [cell for cell in mine if cell.status != "unsupported"]
        rows += [_row(cell, extras, len(heads)) for cell in tried]
        rows += _unsupported(mine, len(heads))
        if not mine:
            rows.append(wide_row("all", word(text.STATUS_WORDS["absent"]), len(heads)))
    return table(heads, rows)


def _row(cell: CellRow, extras: Sequence[Extra], width: int) -> Markup:
    if cell.samples_per_s is None:
        return without_numbers(cell, width)
    numbers = [
        *speed(cell),
        join(cell.verdict or text.DASH, small("use this" * cell.recommended)),
        text.share(cell.data_wait_share),
        text.seconds(cell.step_time_median_s),
        text.seconds(cell.step_time_p95_s),
        text.number(cell.peak_memory_gib, 3),
        text.number(cell.pixel_mean_abs_diff, 2),
        join(f"{cell.ok_runs} of {cell.runs}", small(_spread(cell))),
        text.number(cell.trainer_samples_per_s),
        *(said(cell) for _, said in extras),
    ]
    return row([text.values_text(cell.levels), *numbers], "use" * cell.recommended)


def _spread(cell: CellRow) -> str:
    if cell.spread is None:
        return ""
    return f"{'noisy: ' * cell.noisy}spread {text.share(cell.spread)}"


def _unsupported(cells: Sequence[CellRow], width: int) -> list[Markup]:
    return [
        wide_row(
            "/",
            join(
                word(text.count(len(group), "cell") + " not supported"),
                small(f"{cause} {'; '.join(text.values_text(c.levels) for c in group)}."),
            ),
            width,
        )
        for cause, group in unsupported_groups(cells).items()
    ]
