"""The largest batch that fits, and the fastest one, for every other setting of a study."""

from feedrate.config.values import level_text
from feedrate.report import text
from feedrate.report.gains import Climb, climbs
from feedrate.report.grid import Spot, factor_label, main_factor
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
        "Its allocator retries",
        f"Fastest {label}",
        "Its throughput (samples/s)",
        "Out of memory from",
    ]
    cells = inputs.cells(settings.study)
    rows: list[Markup] = []
    for device in settings.measured:
        rows.append(group_row(settings.label(device), len(heads)))
        rows += [_row(climb, factor) for climb in climbs(settings, cells, factor, device)]
    return table(heads, rows, "last-text")


def _row(climb: Climb, factor: str) -> Markup:
    name = text.values_text(climb.line.rest)
    full, largest, fastest = climb.full, climb.largest, climb.fastest
    cause = full.row.cause.split(". ")[0] if full and full.row else ""
    limit = join(_level(full, factor), small(cause))
    if largest is None or fastest is None:
        return row([name, word("none"), *[text.DASH] * 5, limit])
    cell = largest.row
    return row(
        [
            name,
            _level(largest, factor),
            text.number(largest.value),
            text.number(cell.peak_memory_gib if cell else None, 3),
            text.integer(cell.allocator_retries if cell else None),
            _level(fastest, factor),
            text.number(fastest.value),
            limit,
        ]
    )


def _level(spot: Spot | None, factor: str) -> str:
    return level_text(spot.levels[factor]) if spot else text.DASH
