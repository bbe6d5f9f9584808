"""Result files: CSV with typed rows, Parquet, and whether all runs in them ended well."""

import csv
import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from feedrate.config.values import level_text, parse_level
from feedrate.core.errors import ExpectedError
from feedrate.core.files import atomic_path, write_text
from feedrate.results.columns import RUNS, Column
from feedrate.results.conformity import DISTURBED, MOST_ATTEMPTS
from feedrate.results.schema import BAD, Kind

Row = dict[str, Any]
LISTED = 20
"""Number of failures that `confirm_results` lists."""
UNQUIET = (
    f" After {MOST_ATTEMPTS} attempts, the machine is still not quiet enough. Stop the other work "
    "there, then delete the folders of the run."
)
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


def read_csv(path: Path, columns: Sequence[Column]) -> list[Row]:
    """Read what `write_csv` wrote; a column that is not in `columns` is a factor's level. Raises
    TableError for too few or too many fields, and for one that is not of its column's kind."""
    kinds = {column.name: column.kind for column in columns}
    with path.open(newline="", encoding="utf-8") as stream:
        reader = csv.reader(stream)
        try:
            names = next(reader, [])
            return [_typed(names, fields, kinds) for fields in reader if fields]
        except (ValueError, csv.Error) as error:
            raise TableError(f"{path}, line {reader.line_num}: {error}") from None


def write_parquet(path: Path, columns: Sequence[Column], rows: Sequence[Row]) -> None:
    """Write rows as Parquet, atomically; each column has a type, a unit and a meaning."""
    import pyarrow as pa
    from pyarrow import parquet

    types = {"text": pa.string(), "integer": pa.int64(), "number": pa.float64(), "flag": pa.bool_()}
    fields, arrays = [], []
    for column in columns:
        about = {"unit": column.unit, "description": column.description}
        fields.append(pa.field(column.name, types[column.kind], metadata=about))
        values = [row.get(column.name) for row in rows]
        if column.kind == "text":
            values = [None if value is None else level_text(value) for value in values]
        arrays.append(pa.array(values, types[column.kind]))
    with atomic_path(path) as temporary:
        parquet.write_table(pa.Table.from_arrays(arrays, schema=pa.schema(fields)), temporary)


def _typed(names: Sequence[str], fields: Sequence[str], kinds: Mapping[str, Kind]) -> Row:
    if len(fields) != len(names):
        raise ValueError(f"{len(fields)} fields, expected {len(names)}")
    readers = (_READERS.get(kinds.get(name), parse_level) for name in names)
    cells = zip(names, readers, fields, strict=True)
    return {name: read(text) if text or read is str else None for name, read, text in cells}


def confirm_results(results: Path, out: Path) -> None:
    """Write `out` if no run in `results` (results.csv of all studies) failed. Raises ExpectedError
    with a short list where a run failed, or a check rejected its numbers. Cells that are
    unsupported or ran out of memory are results, not failures."""
    rows = [row for row in read_csv(results, RUNS) if not row.get("measured_as")]
    tried = sum(row["status"] != "unsupported" for row in rows)
    problems = []
    for row in (row for row in rows if row["status"] in BAD):
        problem = f"{row['study']} {row['device']} {row['cell']} rep {row['repeat']}: "
        problem += f"{row['status']}: {row['cause']}"
        disturbed = not DISTURBED.isdisjoint(row.get("failed_checks", "").split(";"))
        if disturbed and (row["attempt"] or 1) >= MOST_ATTEMPTS:
            problem += UNQUIET
        problems.append(problem)
    if len(problems) > LISTED:
        problems[LISTED:] = [f"… and {len(problems) - LISTED} more"]
    if problems:
        failed = sum(row["status"] in BAD for row in rows)
        head = (
            f"{failed} of {tried} runs did not end well; the report shows them, and the same "
            "command repeats those that failed, were disturbed or are missing:"
        )
        raise ExpectedError("\n  ".join([head, *problems]))
    write_text(out, f"{tried} runs, none failed\n")
