"""Result files: their columns, with name, kind, unit and meaning, also for docs/results.md; and
reading and writing them as CSV with typed rows, and as Parquet."""

import csv
import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from feedrate.config.errors import ConfigError
from feedrate.config.values import Level, level_text, parse_level
from feedrate.core.errors import ExpectedError
from feedrate.core.files import atomic_path, write_text
from feedrate.results.schema import VALUES, Kind
from feedrate.results.statistics import RATE

Row = dict[str, Any]
FACTORS = "<factor>"  # placeholder in a list of columns for one column per factor of the studies


class Column(NamedTuple):
    """A column of a result file; an empty field means "not known" or "does not apply"."""

    kind: Kind
    name: str
    description: str
    unit: str = ""


_text = partial(Column, "text")
_integer = partial(Column, "integer")
_number = partial(Column, "number")
_flag = partial(Column, "flag")
_CELL = (
    _text("study", "The study, a file in config/studies."),
    _text("device", "The device, an entry of config/devices.yaml."),
    _text("cell", "The cell's name, made of its levels: `workers=2~decode=host`."),
    _text(FACTORS, "One column per factor of the studies, with the cell's level."),
)
_MEASURED_CELL = (
    *_CELL,
    _text("site", "In a report of several sites: the site of the run."),
    _text("measured_as", "The cell whose runs this cell shares, if it has none of its own."),
    _text("task", "training or inference; in inference a step is a forward pass."),
    _integer("world_size", "Devices in the job, which is the number of ranks."),
    _integer("nodes", "Hosts that share the ranks evenly."),
    _integer("batch_size", "Samples per device and micro-step.", "samples"),
    _flag("short_epochs", "Fewer than 20 steps per epoch: not compared with published rates."),
)

RUNS = (
    *_MEASURED_CELL,
    _integer("repeat", "Number of the repeat, from 1."),
    _text("status", "ok, out_of_memory, failed, invalid, missing or unsupported."),
    _text("cause", "Why the status is not ok; for an ok run, a fault after its results."),
    *(Column(v.kind, v.column, v.meaning, v.unit) for v in VALUES.values()),
    _text("device_kind", "Kind of the device: cpu, cuda or hpu."),
    _integer("gradient_accumulation", "Micro-steps per optimizer step."),
    _integer("loader_workers", "Loader processes per rank."),
    _flag("decodes_on_device", "Whether the device decodes (threads then load in parallel)."),
    _flag("oversubscribed", "Whether the ranks of a host have more loader processes than cores."),
    _flag("keeps_last_batch", "Whether an epoch's incomplete last step is used."),
    _text("precision", "fp32, tf32, bf16, fp16, fp8, bf16_full or fp16_full."),
    _text("parallelism", "ddp, fast_ddp, fsdp1 or fsdp2 (PyTorch's first or second FSDP)."),
    _text("model", "Model and size, for example `bridgetower-tiny`."),
    _text("losses", "own, or all: masked images and texts alone count too (flava)."),
    _text("checkpoint", "Weights that training started from; none: random weights."),
    _integer("model_parameters", "Parameters of the model as built."),
    _number("model_size_gib", "Size of the parameters in fp32.", "GiB"),
    _number("flops_per_sample", "Forward and backward passes, 2 per multiply-add.", "FLOP"),
    _text("library", "Library that trained, with its version."),
    _text("dataset", "The dataset, an entry of config/config.yaml."),
    _text("failed_checks", "Names of the checks that the run failed, separated by `;`."),
    _flag("provisional", "Whether the run is invalid only because other programs disturbed it."),
    _text("disturbed", "What may have disturbed the run, in sentences."),
    _text("folder", "The run's folder, from the project's root."),
)

CELLS = (
    *_MEASURED_CELL,
    _text(
        "status", "ok if any run is ok, else out_of_memory if any run is, then failed, and so on."
    ),
    _text("cause", "Cause of a run with that status; for an ok cell, of a run that is not ok."),
    _flag("use", "Whether this is the setting to use."),
    _text("limit", "What limits the cell: one of the names under Limits below."),
    _number("gain_low", "What a loader that never lets the device wait would gain.", "share"),
    _number("gain_high", "Upper end of the range.", "share"),
    _integer("runs", "Planned runs."),
    _integer("ok_runs", "Runs that count; all medians are over these."),
    _integer("out_of_memory_runs", "Runs that ran out of memory."),
    _integer("failed_runs", "Runs that failed."),
    _integer("invalid_runs", "Runs whose numbers a check rejected."),
    _integer("missing_runs", "Runs that have no folder."),
    _number("provisional_samples_per_s", "If no run is ok: of provisional runs.", "samples/s"),
    _number("speedup", "Ratio to the baseline cell, by the measure of answers.csv."),
    _number("speedup_ci_low", "Lower end of its interval; those of a device hold together."),
    _number("speedup_ci_high", "Upper end of the interval."),
    *(Column(v.kind, v.column, v.meaning, v.unit) for v in VALUES.values() if v.repeats),
    _number("ci_low", "Lower end of the interval of samples_per_s.", "samples/s"),
    _number("ci_high", "Upper end of the interval.", "samples/s"),
    _number("spread", "Difference that two runs of the cell exceed in 5% of all cases.", "share"),
    _flag("noisy", "Whether the spread is above the study's noise_share, or a run was disturbed."),
    _text("disturbed", "What may have disturbed an ok run, in sentences."),
    _number("usd_per_million_samples", "Cost at the device's price_usd_per_hour.", "USD"),
    _number("loss_shift", "loss_end minus the baseline cell's, mean over common repeats."),
    _number("loss_seeds", "Effect of the seed on loss_end: the range over repeats."),
    _flag("loss_departs", "Whether loss_shift exceeds loss_seeds: a warning, not a test."),
    _flag("loss_identical", "Whether every loss equals the baseline's: the batches are the same."),
)

ANSWERS = (
    *_CELL,
    _text("site", "In a report of several sites: the site of the runs."),
    _text("baseline", "The cell that this one is compared with."),
    _integer("compared", "Cells that were compared with each other."),
    _number(RATE, "Median rate of the cell to use.", "samples/s"),
    _number("ci_low", "Lower end of its interval.", "samples/s"),
    _number("ci_high", "Upper end of the interval.", "samples/s"),
    _number("gain_at_least", "By how much it is faster than the baseline, at least.", "share"),
    _number("other_gain_at_most", "By how much another cell could be faster, at most.", "share"),
    _text("equals", "Cells that are not shown to be faster or slower, separated by `;`."),
    _text("nearest", "The cell that could be fastest; empty: nothing else was compared."),
    _number("nearest_low", "Its ratio to the cell to use: lower end of the interval."),
    _number("nearest_high", "Upper end of the interval."),
    _text("limit", "What limits the cell to use, as in cells.csv."),
    _number("limit_gain_low", "As gain_low in cells.csv.", "share"),
    _number("limit_gain_high", "As gain_high in cells.csv.", "share"),
    _text("measure", "What cells are compared by: live/model, or window."),
    _flag("single", "Whether no cell has two runs: noise is then assumed."),
    _integer("more_repeats", "Further repeats of each cell that would halve the uncertainty."),
)

CLAIMS = (
    _text("study", "Study that the claim belongs to."),
    _text("claim", "Name of the claim in the study."),
    _text("of", "Who says it: source, advice (of the source, to everybody) or ours."),
    _text("device", "Device or devices that the expression compares, separated by `;`."),
    _text("source", "Title of the source."),
    _text(
        "edition", "Edition whose published numbers are used; by default those of headline rows."
    ),
    _text("statement", "The claim in words."),
    _text("expression", "The claim as a ratio of cells."),
    _text("metric", "Column of results.csv that the ratio compares; empty: whether a cell fits."),
    _text("measure", "How rates are compared: live/model or window, as in answers.csv."),
    _text("cells", "The cells of the expression, as `device/cell`, separated by `;`."),
    _number("published_value", "The ratio that the source prints."),
    _number("recomputed_from_published", "The same, from the source's rows of `edition`."),
    _text("published_verdict", "Whether both agree, to the digits printed: consistent, or not."),
    _number("measured", "The ratio of our medians."),
    _number("ci_low", "Lower end of its interval, or of its range."),
    _number("ci_high", "Upper end of the interval or of the range."),
    _text("verdict", "holds, refuted, cannot tell, not comparable, or no data here."),
    _text("why", "Why there is no verdict; of a cell that should fit, what its runs show."),
)

COMPARISON = (
    *_CELL,
    _text("change", "The answer. Without a ratio: other status, only before, only after, no rate."),
    _text("cause", "Why a cell without a ratio is not ok."),
    _text("status_before", "As in cells.csv; empty if OLD lacks the cell."),
    _text("status_after", "As in cells.csv; empty if NEW lacks the cell."),
    _integer("ok_runs_before", "Runs of OLD that count."),
    _integer("ok_runs_after", "Runs of NEW that count."),
    _integer("same_runs", "Runs of NEW that OLD also has: they were not repeated."),
    _number("samples_per_s_before", "Median over the ok runs of OLD.", "samples/s"),
    _number("samples_per_s_after", "Median over the ok runs of NEW.", "samples/s"),
    _number("ratio", "samples_per_s_after over samples_per_s_before: below 1 means slower."),
    _number("ratio_ci_low", "Lower end of the ratio's interval."),
    _number("ratio_ci_high", "Upper end of the interval."),
    _text("differs", "Which of spec, data, code, machine and commit differ, separated by `;`."),
    _text("software", "Versions that differ, separated by `;`, such as `torch 2.8.0 to 2.9.0`."),
)

SHARED = {"batch_size", "gradient_accumulation", "precision", "model", "dataset"}
"""Columns of settings: a factor may have the name of one and then is that column."""


def for_studies(columns: Sequence[Column], studies: Mapping[str, Any]) -> list[Column]:
    """`columns` with those of the studies' factors. Raises ConfigError for a factor named like one
    of them."""
    taken = {column.name for column in columns} - SHARED
    levels: dict[str, list[Level]] = {}
    for name, study in studies.items():
        for factor, entry in study.factors.items():
            if factor in taken:
                key = f"config/studies/{name}.yaml: factors.{factor}"
                raise ConfigError(f"{key}: a column of the results has this name; choose another")
            levels.setdefault(factor, []).extend(entry.levels)
    return with_factors(columns, levels)


def with_factors(columns: Sequence[Column], levels: Mapping[str, Iterable[Level]]) -> list[Column]:
    """`columns` with one for each factor in the place of the placeholder, unless the factor has the
    name of another column."""
    names = {column.name for column in columns}
    factors: list[Column] = []
    for name, values in levels.items():
        types = {type(value) for value in values}
        kind: Kind = "text"  # also for levels of several types
        if types == {bool}:
            kind = "flag"
        elif types == {int}:
            kind = "integer"
        elif types and types <= {int, float}:
            kind = "number"
        if name not in names:
            factors.append(Column(kind, name, f"Level of {name}."))
    table: list[Column] = []
    for column in columns:
        table += factors if column.name == FACTORS else [column]
    return table


def with_levels(columns: Sequence[Column], rows: Iterable[Mapping[str, Any]]) -> list[Column]:
    """`columns` with one for each factor: for each key of the rows that is no column."""
    levels: dict[str, list[Level]] = {}
    for row in rows:
        for name, level in row.items():
            values = levels.setdefault(name, [])
            if level is not None:
                values.append(level)
    return with_factors(columns, levels)


FILES = {
    "results.csv": RUNS,
    "cells.csv": CELLS,
    "answers.csv": ANSWERS,
    "claims.csv": CLAIMS,
    "changes.csv": COMPARISON,
}
"""The columns of every file; `changes.csv` is what `compare --out` writes."""
_READERS: dict[Kind | None, Callable[[str], Any]] = {
    "text": str,
    "integer": int,
    "number": float,
    "flag": lambda text: text == "true",
}


class TableError(ExpectedError, ValueError):
    """A damaged result file; the message names the file and the line."""


def write_csv(path: Path, columns: Sequence[Column], rows: Iterable[Mapping[str, Any]]) -> None:
    """Write rows as CSV, atomically; None is an empty field, and a flag is true or false."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow([column.name for column in columns])
    for row in rows:
        values = (row.get(column.name) for column in columns)
        writer.writerow(["" if value is None else level_text(value) for value in values])
    write_text(path, stream.getvalue())


def write_table(folder: Path, name: str, columns: Sequence[Column], rows: Sequence[Row]) -> None:
    """Write a result file, atomically; that of the runs as Parquet too, where each column has a
    type, a unit and a meaning."""
    write_csv(folder / name, columns, rows)
    if FILES[name] is not RUNS:
        return
    # Slow to import, and only this function needs it.
    import pyarrow as pa
    import pyarrow.parquet

    types = {"text": pa.string(), "integer": pa.int64(), "number": pa.float64(), "flag": pa.bool_()}
    fields, arrays = [], []
    for column in columns:
        about = {"unit": column.unit, "description": column.description}
        fields.append(pa.field(column.name, types[column.kind], metadata=about))
        values = [row.get(column.name) for row in rows]
        if column.kind == "text":  # levels of a factor may be of several types
            values = [None if value is None else level_text(value) for value in values]
        arrays.append(pa.array(values, types[column.kind]))
    with atomic_path((folder / name).with_suffix(".parquet")) as temporary:
        pa.parquet.write_table(pa.table(arrays, pa.schema(fields)), temporary)


def read_csv(path: Path, columns: Sequence[Column]) -> list[Row]:
    """Read what `write_csv` wrote; a column that is not in `columns` is a factor's level. Raises
    TableError for too few or too many fields, and for one that is not of its column's kind."""
    kinds = {column.name: column.kind for column in columns}
    with path.open(newline="", encoding="utf-8") as stream:
        reader, rows = csv.reader(stream), []
        try:
            names = next(reader, [])
            readers = [_READERS.get(kinds.get(name), parse_level) for name in names]
            for fields in filter(None, reader):
                if len(fields) != len(names):
                    raise ValueError(f"{len(fields)} fields, expected {len(names)}")
                row: Row = {}
                for name, read, text in zip(names, readers, fields, strict=True):
                    row[name] = read(text) if text or read is str else None
                rows.append(row)
        except (ValueError, csv.Error) as error:
            raise TableError(f"{path}, line {reader.line_num}: {error}") from None
    return rows
