"""Rates by other windows than ours: the Trainer's, and that of the source's protocol."""

from collections.abc import Sequence
from functools import partial
from statistics import median

from feedrate.config.study import SourceProtocol
from feedrate.report import text
from feedrate.report.study import CellRow, RunRow, StudyResults, Trace
from feedrate.report.table import RATE, Column, Field, Table, by_device, setting


def rows(study: StudyResults) -> list[object]:
    """The cells with a rate."""
    rated = [cell for cell in study.tried if cell.samples_per_s is not None]
    return by_device(study, lambda device: [cell for cell in rated if cell.device == device])


def _columns(study: StudyResults) -> list[Column]:
    protocol = study.study.source.protocol
    name = f"The source's ({text.counted(protocol.warmup_steps, 'step')} left out)"
    traces = text.grouped(study.traces, lambda trace: trace.run.key)
    return [
        setting(study),
        RATE._replace(head="Our window", unit="samples/s"),
        Column("The Trainer's own", partial(_trainers, study), optional=True),
        Column(
            "All steps" if protocol == SourceProtocol() else name,
            lambda cell: _sources(traces.get(cell.key, []), protocol),
            optional=True,
        ),
    ]


def _trainers(study: StudyResults, cell: CellRow) -> Field:
    runs = [run for run in study.runs_of(cell) if run.status == "ok"]
    return _compared([(run, rate) for run in runs if (rate := run.trainer_samples_per_s)])


def _sources(traces: Sequence[Trace], protocol: SourceProtocol) -> Field:
    return _compared([(t.run, rate) for t in traces if (rate := source_rate(t, protocol))])


def source_rate(trace: Trace, protocol: SourceProtocol) -> float | None:
    """The rate by the source's protocol, samples/s: from its warm-up to the end of its epochs, with
    their boundaries, as far as the run went; without pauses for checkpoints and evaluations."""
    last = trace.steps[-1].step
    if protocol.epochs and trace.run.steps_per_epoch:
        last = min(last, protocol.epochs * trace.run.steps_per_epoch)
    steps = [step for step in trace.steps if protocol.warmup_steps < step.step <= last]
    if not steps:
        return None
    samples = sum(step.samples or 0 for step in steps) * (trace.run.world_size or 1)
    return samples / sum(step.step_s for step in steps)


def _compared(rates: Sequence[tuple[RunRow, float]]) -> Field:
    """The median rate, and the median of its ratios to our window in the same run."""
    ratios = [rate / run.samples_per_s for run, rate in rates if run.samples_per_s]
    if not ratios:
        return Field(text.DASH)
    against = f"{text.change(median(ratios))} against ours"
    return Field(text.number(median(rate for _, rate in rates)), [against])


TABLES = (
    Table(
        "windows",
        "The same runs by other windows",
        "method",
        60,
        rows,
        _columns,
        "docs/measurement.md says what each window includes.",
    ),
)
