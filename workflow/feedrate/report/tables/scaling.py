"""Throughput over the count of devices: measured, explained, and predicted beyond."""

from collections.abc import Mapping, Sequence

from feedrate.report import text
from feedrate.report.grid import level_key
from feedrate.report.markup import Markup, group_row, join, row, small, table, wide_row
from feedrate.report.rows import CellRow, Inputs
from feedrate.report.settings import TableSettings
from feedrate.results.scaling import Scaling, fit_scaling

BEYOND = (2, 4, 8, 16, 32, 64, 128, 256)
"""Counts to predict for, beyond the largest that was measured."""

_HEADS = ("Devices", "Measured (samples/s)", "Model (samples/s)", "Model's error", "Efficiency")


def render(settings: TableSettings, inputs: Inputs) -> Markup:
    """A group for each kind of device and cell that was measured on two counts or more."""
    rows: list[Markup] = []
    for name, by_count in _groups(settings, inputs.cells(settings.study)).items():
        steps_s = {n: _step_s(cell) for n, cell in by_count.items()}
        model = fit_scaling(steps_s)
        if model is not None:
            rows.append(group_row(name, len(_HEADS)))
            rows += _rows(model, by_count)
    if not rows:
        none = "No cell was measured on two counts of a device, so nothing is predicted."
        rows.append(wide_row("", none, len(_HEADS)))
    return table(_HEADS, rows)


def _groups(
    settings: TableSettings, cells: Sequence[CellRow]
) -> Mapping[str, Mapping[int, CellRow]]:
    """Cells with numbers by family of device and levels, then by count."""
    groups: dict[str, dict[int, CellRow]] = {}
    for cell in cells:
        known = settings.devices.get(cell.device)
        if known and cell.status == "ok" and cell.samples_per_s and cell.batch_size:
            name = f"{settings.label(known.family or cell.device)}: {level_key(cell.levels)}"
            groups.setdefault(name, {})[known.count] = cell
    return groups


def _step_s(cell: CellRow, count: int | None = None) -> float:
    """Time that a batch of every device takes."""
    devices = count or cell.world_size or 1
    return devices * (cell.batch_size or 1) / (cell.samples_per_s or 1.0)


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
