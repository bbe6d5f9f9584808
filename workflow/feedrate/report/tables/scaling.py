"""Throughput by the number of devices: measured and modelled; and, separately, extrapolated."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from feedrate.report import text
from feedrate.report.lines import by_device_count
from feedrate.report.markup import Markup, el, group_row, join, row, table, wide_row
from feedrate.report.params import PageSettings
from feedrate.report.rows import CellRow, Inputs
from feedrate.results.loader_model import POOR_FIT

NEEDS = ("cells",)
ORDER = 150

BEYOND = (2, 4, 8, 16, 32, 64, 128, 256)
"""Device counts to extrapolate to, beyond the largest measured count."""
HEADS = (
    *("Devices", "Measured (samples/s)", "TFLOP/s per device"),
    *("Model, from another count (samples/s)", "Model error"),
)
EXTRAPOLATED = ("Devices", "Extrapolated (samples/s)", "Range by its error", "Model's efficiency")

ByCount = Mapping[int, CellRow]


def render(settings: PageSettings, inputs: Inputs) -> Markup:
    """In each table, a group of rows for each device family and cell: all that were measured on
    several numbers of devices, or whose all-reduce was; beyond those, cells with an all-reduce."""
    measured: list[Markup] = []
    beyond: list[Markup] = []
    for name, cells in by_device_count(settings, inputs.cells(settings.study)).items():
        models = {
            n: _model(n, c)
            for n, c in cells.items()
            if n > 1 and c.exchange_samples_per_s and c.model_samples_per_s
        }
        steps_s = {n: n * cell.batch_size / cell.samples_per_s for n, cell in cells.items()}
        errors = held_out_errors(models, steps_s)
        if models or len(cells) > 1:
            heading = text.with_remark(name, _times(models[max(models)]) if models else "")
            measured += [group_row(heading, len(HEADS)), *_measured(cells, errors)]
        if models:
            beyond.append(group_row(name, len(EXTRAPOLATED)))
            beyond += _extrapolated(cells, models[max(models)], errors)
    if not beyond:
        none = "No all-reduce between devices was measured, so nothing is predicted."
        measured.append(wide_row("", none, len(HEADS)))
        return table(HEADS, measured)
    return join(table(HEADS, measured), table(EXTRAPOLATED, beyond))


class Scaling(NamedTuple):
    """A model of a step's time on n devices: computing, then one all-reduce, s.

    step(n) = c + a (n - 1) / n, with a = 2 bytes / bandwidth: a ring all-reduce sends 2 (n - 1) / n
    times the gradients' bytes over each device's link (Patarasuk and Yuan 2009). Both parts are
    measured on `devices` (at least two), not fitted: the model alone, and the exchange alone.
    Loading, exchange that overlaps with computing, slower links between hosts and stragglers are
    not in the model. Its efficiency cannot fall below c / (c + a), whatever is true; its error on
    counts whose parts it does not use shows how far it holds.
    """

    devices: int
    compute_s: float
    exchange_s: float

    def step_s(self, count: int) -> float:
        """Time of a step on so many devices."""
        whole_s = self.exchange_s * self.devices / (self.devices - 1)
        return self.compute_s + whole_s * (count - 1) / count


def held_out_errors(
    models: Mapping[int, Scaling], steps_s: Mapping[int, float]
) -> dict[int, float]:
    """The relative error of the modelled rate at each measured number of devices, from the parts
    that were measured at the largest other number; without one there is no error.

    `models` and `steps_s` (measured, s) are by number of devices.
    """
    errors = {}
    for count, step_s in steps_s.items():
        if others := [n for n in models if n != count]:
            errors[count] = step_s / models[max(others)].step_s(count) - 1
    return errors


def _model(count: int, cell: CellRow) -> Scaling:
    """From the times for one batch on every device: with accumulation a part of a step."""
    samples = count * cell.batch_size
    return Scaling(count, samples / cell.model_samples_per_s, samples / cell.exchange_samples_per_s)


def _times(model: Scaling) -> str:
    times = f"{text.seconds(model.compute_s)} of computing and {text.seconds(model.exchange_s)}"
    return f"on {text.counted(model.devices, 'device')}, a batch takes {times} of all-reduce"


def _measured(cells: ByCount, errors: Mapping[int, float]) -> Iterator[Markup]:
    for count, cell in sorted(cells.items()):
        error = errors.get(count)
        modelled = None if error is None else cell.samples_per_s * (1 + error)
        rates = (text.number(cell.samples_per_s), text.number(cell.tflops_per_device, 3))
        yield row(str(count), *rates, text.number(modelled), text.signed_share(error), of=[cell])


def _extrapolated(cells: ByCount, model: Scaling, errors: Mapping[int, float]) -> Iterator[Markup]:
    """Rates beyond the largest measured count, and the range that the largest held-out error gives;
    the reason where that error is unknown or large."""
    error = max(map(abs, errors.values()), default=None)
    if error is None or error > POOR_FIT:
        unknown = "no other number of devices was measured, so the model's error is unknown"
        large = f"the model errs by more than {POOR_FIT:.0%} where it can be checked"
        why = f"Nothing: {unknown if error is None else large}."
        yield wide_row("", why, len(EXTRAPOLATED))
        return
    for count in (n for n in BEYOND if n > max(cells)):
        rate = count * cells[max(cells)].batch_size / model.step_s(count)
        spread = f"{text.number(rate / (1 + error))} to {text.number(rate / (1 - error))}"
        efficiency = text.share(model.step_s(1) / model.step_s(count))
        yield row(str(count), el("em", text.number(rate)), spread, efficiency, of=cells.values())
