"""The largest batch that fits and the fastest batch, for every other setting of a study."""

from feedrate.config.values import level_text
from feedrate.report import text
from feedrate.report.answers import not_faster
from feedrate.report.context import PageSettings
from feedrate.report.lines import Line, Point, ladder_lines
from feedrate.report.markup import Markup, group_row, noted, record_link, row, table, word
from feedrate.report.rows import Inputs

ORDER = 90


def render(settings: PageSettings, inputs: Inputs) -> Markup:
    """A row for each combination of the other factors; the table's factor ascends."""
    factor = settings.factor
    label = settings.factor_label(factor)
    heads = [
        ", ".join(settings.factor_label(name) for name in settings.factors if name != factor),
        f"Largest {label} that fits",
        "Its throughput (samples/s)",
        "Its peak memory (GiB)",
        "Its allocator retries",
        f"Fastest {label} measured",
        "Its throughput (samples/s)",
        "Out of memory from",
    ]
    cells = inputs.cells(settings.study)
    rows: list[Markup] = []
    for device in settings.measured:
        heading = text.with_remark(settings.label(device), settings.limit(device))
        rows.append(group_row(heading, len(heads)))
        lines = ladder_lines(settings, cells, factor, device)
        rows += [_row(settings, line) for line in lines]
    return table(heads, rows, "last-text")


def _row(settings: PageSettings, line: Line) -> Markup:
    factor = settings.factor
    name = text.values_text(line.others)
    full, largest, fastest = line.out_of_memory, line.largest, line.fastest
    cause = full.row.cause.split(". ")[0] if full and full.row else ""
    limit = noted(_level(full, factor), cause)
    cell = largest.row if largest else None
    basis = fastest.row.basis.removeprefix(", ") if fastest and fastest.row else ""
    return row(
        name,
        _level(largest, factor) if largest else word("none"),
        _rate(largest),
        text.number(cell.peak_memory_gib if cell else None, 3),
        text.integer(cell.allocator_retries if cell else None),
        noted(_level(fastest, factor), not_faster(settings, line, factor), basis),
        _rate(fastest),
        limit,
    )


def _rate(point: Point | None) -> Markup | str:
    if point is None:
        return text.DASH
    number = record_link(text.number(point.value), point.row)
    return noted(number, text.interval(point.low, point.high))


def _level(point: Point | None, factor: str) -> str:
    return level_text(point.levels[factor]) if point else text.DASH
