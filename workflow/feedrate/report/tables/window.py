"""Sensitivity to the timed window: ours, the Trainer's, and the window of the source's protocol."""

from collections.abc import Sequence
from statistics import median

from feedrate.config.study import SourceProtocol
from feedrate.report import text
from feedrate.report.context import PageSettings
from feedrate.report.rows import CellRow, Inputs, Key, RunRow, Trace, traces
from feedrate.report.table import Column, Field, Shown, Table, cell_table

KINDS = {"window": 150}


def window(settings: PageSettings, inputs: Inputs) -> Table:
    """A row for each tried cell; the source's window is computed from the steps of the ok runs.
    Without a protocol of the source it has all steps."""
    protocol = settings.origin.protocol
    found: dict[Key, list[tuple[RunRow, float, float]]] = {}
    for trace in traces(inputs, settings.study):
        if trace.run.status == "ok" and (rate := source_window(trace, protocol)):
            found.setdefault(trace.run.key, []).append((trace.run, *rate))
    runs = text.grouped(inputs.runs(settings.study), lambda run: run.key)

    def trainers(cell: CellRow) -> Shown:
        own = [(run, run.trainer_samples_per_s) for run in runs.get(cell.key, ())]
        return _compared([(run, rate) for run, rate in own if rate and run.status == "ok"])

    def source(cell: CellRow) -> Shown:
        windows = found.get(cell.key, [])
        wanted = f" of {protocol.epochs}" if protocol.epochs else ""
        ends = [epochs for _, _, epochs in windows]
        until = f"until {text.number(median(ends), 2)}{wanted} epochs" if ends else ""
        return _compared([(run, rate) for run, rate, _ in windows], until)

    name = f"The source's ({text.counted(protocol.warmup_steps, 'step')} left out)"
    columns = [
        Column("Our window", "samples_per_s", text.number, "samples/s"),
        Column("The Trainer's own", trainers),
        Column("All steps" if protocol == SourceProtocol() else name, source),
    ]
    return cell_table(settings, inputs.tried(settings.study), columns)


def source_window(trace: Trace, protocol: SourceProtocol) -> tuple[float, float] | None:
    """The rate by the source's protocol, samples/s, and the epochs of the run at its end: from its
    warm-up to the end of its epochs, with their boundaries, as far as the run went. None without
    any such step. Pauses for checkpoints and evaluations are left out."""
    last, of_epoch = trace.steps[-1].step, trace.run.steps_per_epoch
    if protocol.epochs and of_epoch:
        last = min(last, protocol.epochs * of_epoch)
    steps = [step for step in trace.steps if protocol.warmup_steps < step.step <= last]
    if not steps or not of_epoch:
        return None
    samples = sum(step.samples or 0 for step in steps) * (trace.run.world_size or 1)
    return samples / sum(step.step_s for step in steps), last / of_epoch


def _compared(rates: Sequence[tuple[RunRow, float]], note: str = "") -> Shown:
    """The median rate, and the median of its ratios to our window in the same run."""
    ratios = [rate / run.samples_per_s for run, rate in rates if run.samples_per_s]
    if not ratios:
        return Field(text.DASH, [note])
    return Field(text.number(median(rate for _, rate in rates)), [text.ratio(median(ratios)), note])
