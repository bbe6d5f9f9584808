"""Tables with a row for each cell of a study."""

from collections.abc import Mapping
from functools import partial
from typing import get_args

from msgspec.structs import asdict

from feedrate.config.spec import Stage
from feedrate.core.paths import TRACE_NAME
from feedrate.report import text
from feedrate.report.context import PageSettings
from feedrate.report.rows import CellRow, Inputs, Key
from feedrate.report.table import (
    COSTS,
    MEMORY,
    MFU,
    SPEED,
    Column,
    Field,
    Shown,
    Table,
    cell_table,
    loss_flag,
    three,
)
from feedrate.results.verdicts import ratios

KINDS = {"equal": 40, "latency": 70, "training": 100, "stages": 125, "ceilings": 130, "cells": 160}

WAIT_SHARE = Column("Data-wait share", "data_wait_share", text.share)
STEP = Column("Step time, median", "step_time_median_s", text.seconds)


def cells(settings: PageSettings, inputs: Inputs) -> Table:
    """All cells with their measured values, and the cells without a number."""
    folders = {run.key: run.folder for run in inputs.runs(settings.study) if run.repeat == 1}
    columns = [
        *SPEED,
        Column("Limited by", lambda cell: _verdict(cell, "use this" if cell.recommended else "")),
        WAIT_SHARE,
        STEP,
        Column("Step time, 95th percentile", "step_time_p95_s", text.seconds),
        MEMORY,
        Column("Pixels off (of 255)", "pixel_mean_abs_diff", partial(text.number, digits=2)),
        Column("Good runs", _good_runs),
        Column("The Trainer's own figure", "trainer_samples_per_s", text.number, "samples/s"),
        *MFU,
        *COSTS,
        Column("Trace", partial(_trace, folders), optional=True),
    ]
    return cell_table(settings, inputs.cells(settings.study), columns, recommend=True)


def _verdict(cell: CellRow, note: str) -> Field:
    return Field(cell.verdict or text.DASH, [note])


def _good_runs(cell: CellRow) -> Field:
    spread = f"spread {text.share(cell.spread)}" if cell.spread is not None else ""
    why = ", ".join(filter(None, (spread, "disturbed" if cell.disturbed else "")))
    return Field(f"{cell.ok_runs} of {cell.runs}", [f"noisy: {why}" if cell.noisy else why])


def _trace(folders: Mapping[Key, str], cell: CellRow) -> Field:
    """Repeat 1's trace, which is in the cell's folder, and what the trace lacks."""
    name, _, lacks = cell.trace.partition("; ")
    file = f"{folders.get(cell.key, '')}/{name}" if name == TRACE_NAME else ""
    return Field(name or text.DASH, [lacks], file=file)


def training(settings: PageSettings, inputs: Inputs) -> Table:
    """Speed with its costs and its effect: efficiency, memory, loss and the time of an epoch."""
    columns = [
        *SPEED,
        Column("TFLOP/s per device", "tflops_per_device", three),
        *(column._replace(optional=False) for column in MFU),
        MEMORY,
        Column("Loss at the end", "loss_end", text.number),
        Column("Allocator retries", "allocator_retries", text.integer, optional=True),
        *COSTS,
    ]
    if samples := settings.epoch_samples:
        of_rate = Column(f"Epoch of {samples:,} samples", lambda cell: _hours(samples, cell))
        columns.append(of_rate)
    return cell_table(settings, inputs.cells(settings.study), columns)


def _hours(samples: int, cell: CellRow) -> str:
    """A long time in hours, or in days from two days on: `0.43 h`, `12.1 days`."""
    hours = samples / (cell.samples_per_s or 1.0) / 3600
    return f"{hours:.2f} h" if hours < 48 else f"{hours / 24:.1f} days"


def latency(settings: PageSettings, inputs: Inputs) -> Table:
    """Latency and throughput of forward passes, with the bf16 instructions of a CPU."""
    columns = [
        Column("Latency, median", "step_time_median_s", _milliseconds, "ms"),
        Column("95th percentile", "step_time_p95_s", _milliseconds, "ms"),
        Column("99th percentile", "step_time_p99_s", _milliseconds, "ms"),
        *SPEED,
        Column("Preparing inputs", "data_wait_share", text.share),
        Column("First pass", "first_step_s", text.seconds),
        MEMORY,
        *MFU,
        *COSTS,
        Column("Good runs", lambda cell: f"{cell.ok_runs} of {cell.runs}"),
    ]
    bf16: dict[str, dict[str, None]] = {}
    for run in inputs.runs(settings.study):
        names = filter(None, run.bf16_instructions.split(";"))
        bf16.setdefault(run.device, {}).update(dict.fromkeys(names))
    remarks = {d: f" (bf16 by {' and '.join(names)})" for d, names in bf16.items() if names}
    return cell_table(settings, inputs.cells(settings.study), columns, remarks=remarks)


def _milliseconds(value_s: float | None) -> str:
    return three(None if value_s is None else 1000 * value_s)


def equal(settings: PageSettings, inputs: Inputs) -> Table:
    """The loss at the end and the baseline's: a warning where a fast setting learns differently."""

    def meaning(cell: CellRow) -> str:
        if cell.levels == settings.baseline_of(cell.levels):
            return "the baseline"
        if cell.loss_shift is None:
            needed = "two repeats of both cells that train the same losses on as many samples"
            return f"unknown: this needs {needed} (no smaller last batches)"
        if cell.loss_identical:
            return "equal bit for bit, because the batches are the same: says nothing about quality"
        return loss_flag(cell) or "differs by no more than seeds do: not shown to be equal"

    def end(cell: CellRow) -> Field:
        return Field(text.number(cell.loss_end), [text.counted(cell.ok_runs, "repeat")])

    columns = [
        *SPEED,
        Column("Loss at the end", end),
        Column("Difference from the baseline", "loss_shift", partial(_signed, sign="+")),
        Column("Effect of seeds", "loss_seeds", _signed),
        Column("Meaning", meaning),
    ]
    return cell_table(settings, inputs.tried(settings.study), columns, align="last-text")


def _signed(value: float | None, sign: str = "") -> str:
    return text.DASH if value is None else f"{value:{sign}.3f}"


def ceilings(settings: PageSettings, inputs: Inputs) -> Table:
    """Training throughput and its ceilings, with intervals and the verdict that follows."""
    columns = [
        Column("Training", "samples_per_s", text.number, "samples/s"),
        Column("Loader alone", partial(_alone, "loader")),
        Column("Model alone", partial(_alone, "model")),
        Column("All-reduce alone", partial(_alone, "exchange"), optional=True),
        WAIT_SHARE,
        Column("Limited by", lambda cell: _verdict(cell, cell.why)),
    ]
    rows = inputs.cells(settings.study)
    return cell_table(settings, rows, columns, recommend=True, align="last-text")


def _alone(part: str, cell: CellRow) -> Shown:
    """The ratio of a part alone to training in the same rounds, with its interval; and its rate."""
    ratio = ratios(asdict(cell))[part]
    if ratio is None:
        return text.DASH
    interval = text.ratio_interval(ratio.low, ratio.high) or "measured once"
    below = ""
    if part in cell.below_rate.split(";"):
        slower = ratio.high is not None and ratio.high < 1
        outrun = "another setting that computes the same trains faster"
        below = f"not a ceiling: {'slower than training' if slower else outrun}"
    rate = text.rate(getattr(cell, f"{part}_samples_per_s"))
    return Field(text.ratio(ratio.value), [interval, rate, below])


GROUPS = ("fetch", "prepare")


def stages(settings: PageSettings, inputs: Inputs) -> Table:
    """Time of an optimizer step by stage: of the loader's processes, and of the one that trains. A
    stage that no run measured separately has no column."""
    names = (*GROUPS, *get_args(Stage))
    columns = [
        STEP._replace(heading="Step, median"),
        *(
            Column(name.replace("_", " ").capitalize(), partial(_stage, name), optional=True)
            for name in names
        ),
    ]
    return cell_table(settings, inputs.tried(settings.study), columns)


def _stage(stage: str, cell: CellRow) -> Shown:
    """The time of a stage or group in a step; below it the 95th percentile of its single spans, and
    its CPU time."""
    seconds = getattr(cell, f"stage_{stage}_s")
    if seconds is None:
        lost = cell.stage_not_split.split(";") if cell.stage_not_split else []
        return "not split" if stage in lost or (lost and stage in GROUPS) else text.DASH
    details = {
        "p95": getattr(cell, f"stage_{stage}_p95_s", None),
        "CPU": getattr(cell, f"stage_{stage}_cpu_s", None),
    }
    words = (f"{name} {text.seconds(one)}" for name, one in details.items() if one is not None)
    return Field(text.seconds(seconds), [", ".join(words)])
