"""The published table, device by setting, with measured numbers."""

from collections.abc import Iterator

from feedrate.config.values import Level
from feedrate.report import text
from feedrate.report.context import PageSettings
from feedrate.report.lines import (
    against,
    first_runs,
    level_key,
    missing_capabilities,
    published_rates,
)
from feedrate.report.markup import Markup, group_row, noted, record_link, row, table, word
from feedrate.report.rows import CellRow, Inputs, RunRow
from feedrate.results.comparability import because

ORDER = 50

Columns = list[dict[str, Level]]
Cells = dict[tuple[str, str], CellRow]
"""The measured cells by device and `level_key`."""


def render(settings: PageSettings, inputs: Inputs) -> Markup:
    """Published rows, then measured rows, then their ratio where they can be compared."""
    wanted = settings.columns or [settings.baseline]
    columns = [{**settings.baseline, **levels} for levels in wanted]
    heads = ["Device", *map(text.levels_text, wanted), "Edition, software, batch"]
    cells = {(c.device, level_key(c.levels)): c for c in inputs.cells(settings.study)}
    rows = [
        group_row(f"Published (samples/s): {settings.origin.title}", len(heads)),
        *_published(settings, columns),
        group_row("Measured here (samples/s)", len(heads)),
        *(_measured(settings, cells, device, columns) for device in settings.measured),
        *_compared(settings, cells, first_runs(inputs.runs(settings.study)), columns),
    ]
    return table(heads, rows, "last-text")


def _published(settings: PageSettings, columns: Columns) -> Iterator[Markup]:
    values = published_rates(settings)
    for device in dict.fromkeys(device for device, _ in values):
        numbers = []
        for levels in columns:
            found = values.get((device, level_key(levels)))
            missing = "/" if missing_capabilities(settings, device, levels) else text.DASH
            numbers.append(text.exact(found.value) if found else missing)
        mine = [entry for (name, _), entry in values.items() if name == device]
        known = ((e.edition, e.software, _batch(e.batch_size)) for e in mine)
        about = dict.fromkeys(", ".join(filter(None, one)) for one in known)
        yield row(_name(settings, device, mine[0].count), *numbers, "; ".join(about))


def _measured(settings: PageSettings, cells: Cells, device: str, columns: Columns) -> Markup:
    numbers = [_number(cells.get((device, level_key(levels)))) for levels in columns]
    batches = {c.batch_size for (name, _), c in cells.items() if name == device and c.batch_size}
    about = text.listed(_batch(batch) for batch in sorted(batches))
    return row(_name(settings, device, settings.devices[device].count), *numbers, about)


def _compared(
    settings: PageSettings, cells: Cells, runs: dict[tuple[str, str], RunRow], columns: Columns
) -> Iterator[Markup]:
    """Measured over published rates of a device; where they are not comparable, why."""
    values, keys = published_rates(settings), list(map(level_key, columns))
    for device in settings.measured:
        ratios: list[str] = []
        wrong: dict[str, None] = {}
        for at in ((device, key) for key in keys):
            both = at in values and at in runs and at in cells
            found = against(settings, values[at], runs[at], "rate") if both else []
            wrong |= dict.fromkeys(found)
            rate = cells[at].samples_per_s if both and not found else None
            ratio = text.ratio(rate / values[at].value if rate else None)
            ratios.append(record_link(ratio, cells[at] if rate else None))
        if wrong or {*ratios} != {text.DASH}:
            name = f"{settings.label(device)}: measured / published"
            yield row(name, *ratios, because(wrong) if wrong else "")


def _number(cell: CellRow | None) -> Markup:
    if cell is None:
        return word(text.STATUS_WORDS["absent"])
    if cell.samples_per_s is None:
        return word("/" if cell.status == "unsupported" else text.STATUS_WORDS[cell.status])
    remark = text.interval(cell.ci_low, cell.ci_high)
    marks = ["noisy" * cell.noisy, "short epochs" * cell.short_epochs]
    return noted(record_link(text.number(cell.samples_per_s), cell), remark, *marks)


def _name(settings: PageSettings, device: str, count: int) -> Markup:
    return noted(settings.label(device), text.counted(count, "device"))


def _batch(size: int | None) -> str:
    return f"batch {size}" if size else "batch not stated"
