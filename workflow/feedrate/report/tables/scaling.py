"""Throughput by the number of devices: measured, modelled, and predicted for larger numbers."""

from collections.abc import Mapping, Sequence

from feedrate.report import text
from feedrate.report.lines import level_key
from feedrate.report.markup import Markup, as_page, group_row, join, row, small, table, wide_row
from feedrate.report.params import PageSettings
from feedrate.report.rows import CellRow, Inputs
from feedrate.results.fitting import Scaling, scaling

NEEDS = ("cells",)
ORDER = 150

BEYOND = (2, 4, 8, 16, 32, 64, 128, 256)
"""Device counts to predict, beyond the largest measured count."""
HEADS = ("Devices", "Measured (samples/s)", "Model (samples/s)", "Model error", "Efficiency")


@as_page
def render(settings: PageSettings, inputs: Inputs) -> Markup:
    """A group of rows for each device family and cell with a measured all-reduce."""
    rows: list[Markup] = []
    for name, by_count in _groups(settings, inputs.cells(settings.study)).items():
        known = [n for n, cell in by_count.items() if n > 1 and cell.exchange_samples_per_s]
        if not known:
            continue
        count, cell = max(known), by_count[max(known)]
        # The times for one batch on every device: with gradient accumulation a part of a step.
        samples = count * cell.batch_size
        rates = (cell.model_samples_per_s, cell.exchange_samples_per_s)
        model = scaling(count, *(samples / rate for rate in rates))
        compute, exchange = model.compute_s, model.step_s(count) - model.compute_s
        times = f"{text.seconds(compute)} of computing and {text.seconds(exchange)} of all-reduce"
        rows.append(
            group_row(
                f"{name} (on {text.count(count, 'device')}: a batch takes {times})", len(HEADS)
            )
        )
        rows += _rows(model, by_count)
    if not rows:
        none = "No all-reduce between devices was measured, so nothing is predicted."
        rows.append(wide_row("", none, len(HEADS)))
    return table(HEADS, rows)


def _groups(settings: PageSettings, cells: Sequence[CellRow]) -> dict[str, dict[int, CellRow]]:
    """Cells with numbers by device family and levels, then by device count."""
    groups: dict[str, dict[int, CellRow]] = {}
    for cell in cells:
        known = settings.devices.get(cell.device)
        measured = cell.samples_per_s and cell.batch_size and cell.model_samples_per_s
        if known and cell.status == "ok" and measured:
            name = f"{settings.label(known.family or cell.device)}: {level_key(cell.levels)}"
            groups.setdefault(name, {})[known.count] = cell
    return groups


def _rows(model: Scaling, by_count: Mapping[int, CellRow]) -> list[Markup]:
    batch = next(iter(by_count.values())).batch_size or 1
    rows = []
    for count in sorted({*by_count, *(n for n in BEYOND if n > max(by_count))}):
        cell = by_count.get(count)
        predicted = count * batch / model.step_s(count)
        measured = cell.samples_per_s if cell else None
        error = predicted / measured - 1 if measured else None
        rows.append(
            row(
                str(count),
                text.number(measured) if cell else join(text.DASH, small("predicted")),
                text.number(predicted),
                text.signed_share(error),
                text.share(model.step_s(1) / model.step_s(count)),
            )
        )
    return rows
