"""Tables with a row for each cell: everything measured, the stages of a step, and scaling."""

from functools import partial
from typing import get_args

from feedrate.config.spec import Stage
from feedrate.config.values import BETWEEN_LEVELS, parse_levels
from feedrate.core.paths import TRACE_NAME
from feedrate.report import text
from feedrate.report.study import CellRow, StudyResults, level_key
from feedrate.report.table import (
    CHANGE,
    RATE,
    Column,
    Field,
    Table,
    Wide,
    by_device,
    cell_rows,
    setting,
)
from feedrate.results.schema import VALUES


def cells(study: StudyResults) -> list[object]:
    """All cells: those that share the runs of another one last."""

    def rows(device: str) -> list[object]:
        own = [cell for cell in study.cells if not cell.measured_as]
        shared = [cell for cell in study.cells if cell.measured_as and cell.device == device]
        return [*cell_rows(device, own), *map(_shared, shared)]

    return by_device(study, rows)


def _shared(cell: CellRow) -> Wide:
    same = text.values_text(parse_levels(cell.measured_as, BETWEEN_LEVELS))
    name = Field(text.values_text(cell.levels), of=[cell])
    return Wide(name, f"Same runs as {same}: the settings that differ have no effect")


def _columns(study: StudyResults) -> list[Column]:
    columns = [
        setting(study),
        RATE,
        CHANGE,
        Column("Model alone", partial(_alone, "model"), unit="samples/s", optional=True),
        Column("Loader alone", partial(_alone, "loader"), unit="samples/s", optional=True),
        Column("All-reduce alone", partial(_alone, "exchange"), unit="samples/s", optional=True),
        *EXTRA,
        Column("USD per million samples", "usd_per_million_samples", text.number, optional=True),
        Column("Loss at the end", _loss, optional=True),
        Column("Good runs", _good_runs),
        Column("Trace", partial(_trace, study), optional=True),
    ]
    if samples := study.study.epoch_samples:
        columns.insert(3, Column(f"Epoch of {samples:,} samples", partial(_epoch, samples)))
    return columns


FORMATS = {"share": text.share, "s": text.seconds}
EXTRA = [
    Column(value.extra, name, FORMATS.get(value.unit, text.number), optional=True)
    for name, value in VALUES.items()
    if value.extra
]
"""The values to which the schema gives a heading."""


def _alone(part: str, cell: CellRow) -> Field:
    """The rate of a part alone; below it, against training in the same rounds."""
    ends = (getattr(cell, f"{part}_ratio{end}") for end in ("", "_low", "_high"))
    against = text.change(*ends)
    note = f"{against} against training" if against != text.DASH else ""
    return Field(text.number(getattr(cell, f"{part}_samples_per_s")), [note])


def _loss(cell: CellRow) -> Field:
    note = ""
    if cell.loss_identical:
        note = "equal to the baseline's bit for bit"
    elif cell.loss_shift is not None and cell.loss_seeds is not None:
        note = (
            f"{cell.loss_shift:+.3f} against the baseline's; effect of seeds {cell.loss_seeds:.3f}"
        )
    return Field(text.number(cell.loss_end), [note])


def _good_runs(cell: CellRow) -> Field:
    spread = f"spread {text.share(cell.spread)}" if cell.spread is not None else ""
    return Field(f"{cell.ok_runs} of {cell.runs}", [spread, cell.disturbed])


def _epoch(samples: int, cell: CellRow) -> str:
    """A long time in hours, or in days from two days on: `0.43 h`, `12.1 days`."""
    hours = samples / cell.samples_per_s / 3600
    return f"{hours:.2f} h" if hours < 48 else f"{hours / 24:.1f} days"


def _trace(study: StudyResults, cell: CellRow) -> Field:
    """Repeat 1's trace, which is in its run's folder, and what the trace lacks."""
    name, _, lacks = cell.trace.partition("; ")
    folder = next((run.folder for run in study.runs_of(cell) if run.repeat == 1), "")
    return Field(name or text.DASH, [lacks], file=f"{folder}/{name}" if name == TRACE_NAME else "")


# Stages

GROUPS = ("fetch", "prepare")


def staged(study: StudyResults) -> list[object]:
    """The cells of which a run measured stages."""
    names = [f"stage_{name}_s" for name in (*GROUPS, *get_args(Stage))]
    known = [c for c in study.tried if any(getattr(c, name) is not None for name in names)]
    return by_device(study, lambda device: [cell for cell in known if cell.device == device])


def _stage_columns(study: StudyResults) -> list[Column]:
    return [
        setting(study),
        Column("Step, median", "step_time_median_s", text.seconds),
        *(
            Column(name.replace("_", " ").capitalize(), partial(_stage, name), optional=True)
            for name in (*GROUPS, *get_args(Stage))
        ),
    ]


def _stage(stage: str, cell: CellRow) -> Field:
    """The time of a stage or group in a step; below it the 95th percentile of its single spans."""
    seconds = getattr(cell, f"stage_{stage}_s")
    if seconds is None:
        lost = cell.stage_not_split.split(";") if cell.stage_not_split else []
        is_lost = stage in lost or (lost and stage in GROUPS)
        return Field("not split" if is_lost else text.DASH, word=True)
    tail = getattr(cell, f"stage_{stage}_p95_s", None)
    return Field(text.seconds(seconds), [f"p95 {text.seconds(tail)}"] if tail is not None else [])


# Scaling


def scaling(study: StudyResults) -> list[object]:
    """Cells that were measured on several numbers of devices of one family."""
    devices = study.plan.project.devices
    rated = [c for c in study.tried if c.samples_per_s is not None and c.device in devices]

    def alike(cell: CellRow) -> tuple[str, str, int | None]:
        family = devices[cell.device].variant_of or cell.device
        return family, level_key(cell.levels), cell.batch_size

    rows: list[object] = []
    for (family, _, batch), group in text.grouped(rated, alike).items():
        if len({cell.device for cell in group}) > 1:
            rows.append(
                f"{study.label(family)}, {text.levels_text(group[0].levels)}, batch {batch}"
            )
            rows += sorted(group, key=lambda cell: devices[cell.device].count)
    return rows


TABLES = (
    Table("cells", "All settings", "why", 20, cells, _columns),
    Table(
        "stages",
        "Time by stage",
        "why",
        21,
        staged,
        _stage_columns,
        "The times are per optimizer step; stages of the loader overlap with those of training.",
    ),
    Table(
        "scaling",
        "Throughput by the number of devices",
        "why",
        23,
        scaling,
        [
            Column("Devices", lambda cell: Field(str(cell.world_size), of=[cell])),
            RATE,
            Column("TFLOP/s per device", "tflops_per_device", text.number),
        ],
    ),
)
