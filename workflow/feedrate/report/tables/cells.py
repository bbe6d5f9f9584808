"""Tables with a row for each cell: everything measured, stages of a step, scaling."""

from functools import partial
from typing import Any, get_args

from feedrate.config.spec import Stage
from feedrate.config.values import BETWEEN_LEVELS, level_text, parse_levels
from feedrate.core.paths import TRACE_NAME
from feedrate.report import text
from feedrate.report.rows import CellRow, level_key
from feedrate.report.study import StudyResults
from feedrate.report.table import RATE, Column, Field, Table, by_device, gain, setting, wide
from feedrate.results.schema import VALUES

# All cells

EXTRA = {
    "First step": "first_step_s",
    "Waiting for data": "data_wait_share",
    "Peak memory (GiB)": "peak_memory_gib",
    "Host memory (GiB)": "host_peak_memory_gib",
    "Allocator retries": "allocator_retries",
    "Energy (J/sample)": "energy_j_per_sample",
    "MFU (of the peak FLOP/s)": "mfu",
    "MFU, real tokens": "mfu_real_tokens",
    "TFLOP/s per device": "tflops_per_device",
    "Skipped": "skipped_updates",
    "The Trainer's own rate": "trainer_samples_per_s",
    "Difference of pixels (of 255)": "pixel_mean_abs_diff",
}
"""Columns of measured values that are shown where they are known, by their heading."""


def cells(study: StudyResults) -> list[Any]:
    """The tried cells; then those that a device does not support and those that share runs, with a
    row for each cause."""
    rows = by_device(study, study.tried)
    others = [cell for cell in study.cells if cell.measured_as or cell.status == "unsupported"]
    groups = text.grouped(others, lambda cell: (cell.device, cell.measured_as, cell.cause))
    for (device, shared, cause), group in groups.items():
        levels = {
            name: text.listed(dict.fromkeys(level_text(cell.levels[name]) for cell in group))
            for name in group[0].levels
        }
        name = text.counted(len(group), "setting")
        if len(study.devices) > 1:
            name = f"{study.label(device)}, {name}"
        if shared:
            same = text.values_text(parse_levels(shared, BETWEEN_LEVELS))
            cause = f"Same runs as {same}: the settings that differ have no effect"
        rows.append(wide(Field(name, of=group), f"among {text.levels_text(levels)}", cause))
    return rows


def _columns(study: StudyResults) -> list[Column]:
    formats = {"share": text.share, "s": text.seconds}
    extra = [
        Column(head, name, formats.get(VALUES[name].unit, text.number), optional=True)
        for head, name in EXTRA.items()
    ]
    samples = study.study.epoch_samples
    epoch = [Column(f"Epoch of {samples:,} samples", partial(_epoch, samples))] if samples else []
    return [
        setting(study, study.tried),
        RATE,
        gain(study),
        *epoch,
        Column("Model alone, against training", partial(_alone, "model"), optional=True),
        Column("Loader alone, against training", partial(_alone, "loader"), optional=True),
        Column("All-reduce alone, against training", partial(_alone, "exchange"), optional=True),
        Column("Step, median", "step_time_median_s", text.seconds),
        *extra,
        Column("USD per million samples", "usd_per_million_samples", text.number, optional=True),
        Column("Loss at the end", _loss, optional=True),
        Column("Good runs", lambda cell: f"{cell.ok_runs} of {cell.runs}"),
        Column("Trace", partial(_trace, study), optional=True),
    ]


def _epoch(samples: int, cell: CellRow) -> str:
    """A long time in hours, or in days from two days on: `0.430 h`, `12.1 days`."""
    if cell.samples_per_s is None:
        return text.DASH
    hours = samples / cell.samples_per_s / 3600
    return f"{text.number(hours)} h" if hours < 48 else f"{hours / 24:.1f} days"


def _alone(part: str, cell: CellRow) -> Field:
    """A part alone against training in the same rounds; below a loader, its rate there. That of the
    model beside the rate of another window would look like a contradiction: the machine drifts."""
    value = getattr(cell, f"{part}_ratio")
    times = text.ratio(value) if value and value >= 2 else text.change(value)
    rate = text.number(getattr(cell, f"{part}_samples_per_s"))
    return Field(times, [f"{rate} samples/s" if value and part == "loader" else ""])


def _loss(cell: CellRow) -> Field:
    note = "by repeat equal to the baseline's, bit for bit" if cell.loss_identical else ""
    if not note and cell.loss_shift is not None and cell.loss_seeds is not None:
        shift, seeds = (
            f"{value:{sign}.3f}" if abs(value) >= 0.0005 else "less than 0.001"
            for value, sign in ((cell.loss_shift, "+"), (cell.loss_seeds, ""))
        )
        note = f"{shift} against the baseline; seeds differ by {seeds}"
    return Field(text.number(cell.loss_end), [note])


def _trace(study: StudyResults, cell: CellRow) -> Field:
    """Repeat 1's trace, which is in its run's folder, and what the trace lacks."""
    name, _, lacks = cell.trace.partition("; ")
    folder = next((run.folder for run in study.runs_of(cell) if run.repeat == 1), "")
    return Field(name or text.DASH, [lacks], file=f"{folder}/{name}" if name == TRACE_NAME else "")


# Stages

STAGES = get_args(Stage)


def staged(study: StudyResults) -> list[Any]:
    """The cells with times by stage."""
    names = [f"stage_{name}_s" for name in STAGES]
    cells = (c for c in study.tried if any(getattr(c, name) is not None for name in names))
    return by_device(study, cells)


def _stage_columns(study: StudyResults) -> list[Column]:
    stages = [
        Column(name.replace("_", " ").capitalize(), partial(_stage, name), optional=True)
        for name in STAGES
    ]
    return [
        setting(study, study.tried),
        Column("Step, median", "step_time_median_s", text.seconds),
        *stages,
    ]


def _stage(stage: str, cell: CellRow) -> str:
    split = stage not in cell.stage_not_split.split(";")
    return text.seconds(getattr(cell, f"stage_{stage}_s")) if split else "not split"


# Scaling


def scaling(study: StudyResults) -> list[Any]:
    """Cells that were measured on several numbers of devices of one family."""
    rated = [cell for cell in study.tried if cell.samples_per_s is not None]
    groups = text.grouped(rated, lambda cell: _alike(study, cell))
    rows: list[Any] = []
    for (family, _, batch), group in groups.items():
        if len(group) > 1:
            levels = text.levels_text(group[0].levels)
            rows.append(f"{study.label(family)}, {levels}, batch {batch}")
            rows += sorted(group, key=lambda cell: cell.world_size)
    return rows


def _alike(study: StudyResults, cell: CellRow) -> tuple[str, str, int | None]:
    entry = study.plan.project.devices[cell.device]
    return entry.variant_of or cell.device, level_key(cell.levels), cell.batch_size


def _scaling_columns(_: StudyResults) -> list[Column]:
    return [
        Column("Devices", lambda cell: Field(str(cell.world_size), of=[cell])),
        RATE,
        Column("TFLOP/s per device", "tflops_per_device", text.number),
    ]


OVERLAP = "Times are per step; the loader's stages overlap the others."
ROUNDS = "The model or the loader alone is compared with training in the same rounds of each run."
TABLES = (
    Table("cells", "All settings", "why", 20, cells, _columns, ROUNDS),
    Table("stages", "Time by stage", "why", 21, staged, _stage_columns, OVERLAP),
    Table("scaling", "By the number of devices", "why", 22, scaling, _scaling_columns),
)
