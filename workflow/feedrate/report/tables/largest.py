"""The largest batch that fits, and the fastest one, for every other setting of a study."""

from collections.abc import Sequence

from feedrate.config.base import level_text
from feedrate.report import text
from feedrate.report.grid import Line, Spot, factor_label, main_factor, measured_lines, tried
from feedrate.report.markup import Markup, group_row, join, row, small, table, word
from feedrate.report.rows import Inputs
from feedrate.report.settings import TableSettings


def render(settings: TableSettings, inputs: Inputs) -> Markup:
    """A row for each combination of the other factors; levels of the table's factor ascend."""
    factor = main_factor(settings, settings.table.factor)
    others = [name for name in settings.factors if name != factor]
    label = factor_label(settings, factor)
    heads = [
        ", ".join(factor_label(settings, name) for name in others),
        f"Largest {label} that fits",
        "Its throughput (samples/s)",
        "Its peak memory (GiB)",
        f"Fastest {label}",
        "Its throughput (samples/s)",
        "Out of memory from",
    ]
    lines = tried(measured_lines(settings, inputs.cells(settings.study), factor))
    rows: list[Markup] = []
    for device in settings.measured:
        rows.append(group_row(settings.label(device), len(heads)))
        mine = [line for line in lines if line.device == device]
        rows += [_row(line, factor) for line in mine]
    return table(heads, rows)


def _row(line: Line, factor: str) -> Markup:
    fitting = [spot for spot in line.spots if spot.value is not None]
    failed = [spot for spot in line.spots if spot.status == "out_of_memory"]
    name = text.values_text(line.rest)
    limit = join(_level(failed, factor), small(_cause(failed)))
    if not fitting:
        return row([name, word("none"), *[text.DASH] * 4, limit])
    largest, fastest = fitting[-1], max(fitting, key=lambda spot: spot.value or 0.0)
    return row(
        [
            name,
            _level([largest], factor),
            text.number(largest.value),
            text.number(largest.row.peak_memory_gib if largest.row else None, 3),
            _level([fastest], factor),
            text.number(fastest.value),
            limit,
        ]
    )


def _level(spots: Sequence[Spot], factor: str) -> str:
    return level_text(spots[0].levels[factor]) if spots else text.DASH


def _cause(failed: Sequence[Spot]) -> str:
    return failed[0].row.cause if failed and failed[0].row else ""
