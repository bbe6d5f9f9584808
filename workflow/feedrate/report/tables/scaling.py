"""Throughput over the count of devices: measured, explained, and predicted beyond."""

from collections.abc import Mapping, Sequence

from feedrate.report import text
from feedrate.report.grid import level_key
from feedrate.report.markup import Markup, group_row, join, row, small, table, wide_row
from feedrate.report.rows import CellRow, Inputs
from feedrate.report.settings import TableSettings
from feedrate.results.fitting import Scaling, scaling

BEYOND = (2, 4, 8, 16, 32, 64, 128, 256)
"""Counts to predict for, beyond the largest that was measured."""

_HEADS = ("Devices", "Measured (samples/s)", "Model (samples/s)", "Model's error", "Efficiency")


def render(settings: TableSettings, inputs: Inputs) -> Markup:
    """A group for each kind of device and cell whose exchange was measured on some count."""
    rows: list[Markup] = []
    for name, by_count in _groups(settings, inputs.cells(settings.study)).items():
        known = [n for n, cell in by_count.items() if n > 1 and cell.exchange_samples_per_s]
        if not known:
            continue
        model = _model(max(known), by_count[max(known)])
        said = f"{name} (on {max(known)}: {_constants(model, max(known))})"
        rows.append(group_row(said, len(_HEADS)))
        rows += _rows(model, by_count)
    if not rows:
        none = "No cell's exchange between devices was measured, so nothing is predicted."
        rows.append(wide_row("", none, len(_HEADS)))
    return table(_HEADS, rows)


def _groups(
    settings: TableSettings, cells: Sequence[CellRow]
) -> Mapping[str, Mapping[int, CellRow]]:
    """Cells with numbers by family of device and levels, then by count."""
    groups: dict[str, dict[int, CellRow]] = {}
    for cell in cells:
        known = settings.devices.get(cell.device)
        measured = cell.samples_per_s and cell.batch_size and cell.model_samples_per_s
        if known and cell.status == "ok" and measured:
            name = f"{settings.label(known.family or cell.device)}: {level_key(cell.levels)}"
            groups.setdefault(name, {})[known.count] = cell
    return groups


def _model(count: int, cell: CellRow) -> Scaling:
    """For a batch of every device, whose share of a step it is where steps have several."""
    samples = count * (cell.batch_size or 1)
    alone = (cell.model_samples_per_s or 1.0, cell.exchange_samples_per_s or 1.0)
    return scaling(count, *(samples / rate for rate in alone))


def _constants(model: Scaling, count: int) -> str:
    exchange_s = model.step_s(count) - model.compute_s
    return (
        f"a batch takes {text.seconds(model.compute_s)} to compute and {text.seconds(exchange_s)} "
        "to exchange"
    )


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
                [
                    str(count),
                    text.number(measured) if cell else join(text.DASH, small("predicted")),
                    text.number(predicted),
                    text.signed_share(error),
                    text.share(model.step_s(1) / model.step_s(count)),
                ]
            )
        )
    return rows
