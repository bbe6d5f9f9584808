"""Result files as CSV: rows in and out, typed by their columns."""

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from feedrate.config.errors import ConfigError
from feedrate.config.plan import Unsupported
from feedrate.config.values import Level, level_text, parse_level
from feedrate.core.files import write_text
from feedrate.results.columns import RUNS, Column, Kind, with_factors
from feedrate.results.record import Measurement, Provenance, Record

Row = dict[str, Any]


def write_rows(path: Path, columns: Sequence[Column], rows: Iterable[Mapping[str, Any]]) -> None:
    """Write rows as CSV, atomically; None is an empty field, a flag is true or false."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow([column.name for column in columns])
    for row in rows:
        values = (row.get(column.name) for column in columns)
        writer.writerow(["" if value is None else level_text(value) for value in values])
    write_text(path, stream.getvalue())


def read_rows(path: Path, columns: Sequence[Column]) -> list[Row]:
    """Read what `write_rows` wrote; a column that is not in `columns` is a factor's level.

    Raises ValueError, naming the file, where a field is not of its column's kind, or has none.
    """
    kinds: dict[str, Kind] = {column.name: column.kind for column in columns}
    with path.open(newline="", encoding="utf-8") as stream:
        reader = csv.DictReader(stream)
        try:
            return [_typed(row, kinds) for row in reader]
        except (ValueError, csv.Error) as error:
            raise ValueError(f"{path}, line {reader.line_num}: {error}") from None


def level_kind(levels: Iterable[Level]) -> Kind:
    """The kind of a factor's column: that of its levels, or text where they differ."""
    types = {type(level) for level in levels}
    if types == {bool}:
        return "flag"
    if types == {int}:
        return "integer"
    return "number" if types and types <= {int, float} else "text"


def _typed(row: Mapping[Any, Any], kinds: Mapping[str, Kind]) -> Row:
    if None in row:  # so DictReader calls what is beyond the header
        raise ValueError("more fields than columns")
    return {name: _value(text or "", kinds.get(name)) for name, text in row.items()}


def _value(text: str, kind: Kind | None) -> Any:
    if text == "":
        return "" if kind == "text" else None
    if kind is None:
        return parse_level(text)
    if kind == "integer":
        return int(text)
    if kind == "number":
        return float(text)
    return text == "true" if kind == "flag" else text


# From a record to its row of results.csv.


SHARED = frozenset({"batch_size", "gradient_accumulation", "precision", "model", "dataset"})
"""Columns of settings: a factor may bear the name of one and then is that column."""

_MEASURED = [c.name for c in RUNS if c.name in Measurement.__struct_fields__]
_PROVEN = [c.name for c in RUNS if c.name in Provenance.__struct_fields__]


def run_columns(studies: dict[str, Any]) -> list[Column]:
    """The columns of results.csv for these studies."""
    return with_factors(RUNS, factor_kinds(studies, RUNS))


def factor_kinds(studies: dict[str, Any], fixed: Iterable[Column]) -> dict[str, Kind]:
    """Every factor of the studies with the kind of its column.

    Raises ConfigError for a factor that bears the name of a result's column.
    """
    taken = {column.name for column in fixed} - SHARED
    levels: dict[str, list[Any]] = {}
    for name, study in studies.items():
        for factor, entry in study.factors.items():
            if factor in taken:
                raise ConfigError(
                    f"config/studies/{name}.yaml: factors.{factor}: not allowed; the results have "
                    "a column of this name"
                )
            levels.setdefault(factor, []).extend(entry.levels)
    return {factor: level_kind(values) for factor, values in levels.items()}


def run_row(record: Record, path: str) -> Row:
    """One row of results.csv, by column; fields that are not known are left out.

    The numbers of an invalid run stay in its row; its status keeps them out of all else.
    """
    row: Row = {
        "study": record.study,
        "device": record.device,
        "cell": record.cell,
        "repeat": record.repeat,
        "status": record.status,
        "cause": record.cause,
        "trainer_samples_per_s": record.trainer.samples_per_s,
        "loader_samples_per_s": record.ceilings.loader_samples_per_s,
        "model_samples_per_s": record.ceilings.model_samples_per_s,
        "exchange_samples_per_s": record.ceilings.exchange_samples_per_s,
        "pixel_mean_abs_diff": record.pixels.mean_abs_diff,
        "pixel_psnr_db": record.pixels.psnr_db,
        "model_parameters": record.model_parameters,
        "flops_per_sample": record.flops_per_sample,
        "library": record.trainer.library,
        "failed_checks": ";".join(check.name for check in record.checks if not check.passed),
        "record": path,
    }
    row |= {name: getattr(record.provenance, name) for name in _PROVEN}
    row["bf16_instructions"] = ";".join(record.provenance.bf16_instructions)
    if record.measurement:
        row |= {name: getattr(record.measurement, name) for name in _MEASURED}
    if record.spec:
        train, model = record.spec.settings.train, record.spec.settings.model
        loader, ranks = record.spec.settings.loader, record.spec.count // record.spec.nodes
        # Of a device's decoder the workers are threads that wait for files.
        on_device = loader.decode == "device"
        loading = 0 if on_device else loader.workers * ranks
        row |= {
            "task": record.spec.task,
            "batch_size": train.batch_size,
            "gradient_accumulation": train.gradient_accumulation,
            "precision": train.precision,
            "world_size": record.spec.count,
            "nodes": record.spec.nodes,
            "loader_workers": loader.workers,
            "decodes_on_device": on_device,
            "oversubscribed": loading > (record.provenance.cores_granted or loading),
            "keeps_last_batch": loader.last_batch == "keep",
            "model": f"{model.name}-{model.size}",
            "dataset": record.spec.dataset,
        }
    return row | record.levels


def unsupported_row(cell: Unsupported) -> Row:
    """The one row of a cell that was never launched."""
    return {
        "study": cell.study,
        "device": cell.device,
        "cell": cell.cell,
        "repeat": 1,
        "status": "unsupported",
        "cause": lacking(cell),
        **cell.levels,
    }


def lacking(cell: Unsupported) -> str:
    """Why a cell was never launched, in a sentence."""
    return f"{cell.device} lacks the capability {cell.lacks}."
