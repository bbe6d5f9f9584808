"""`python -m feedrate.results.collect`: all records into results.csv, .parquet and cells.csv.

Option values may come from a file with `@FILE` (one argument a line), since 10,000 records are
more than a command line holds.
"""

import argparse
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from feedrate.config.errors import ConfigError
from feedrate.config.reading import convert, convert_text
from feedrate.config.values import level_text
from feedrate.core.errors import fail
from feedrate.core.files import atomic_path
from feedrate.results.assemble import read_list
from feedrate.results.cells import cell_columns, cell_rows
from feedrate.results.columns import Column
from feedrate.results.record import RecordError, read_record
from feedrate.results.settings import CollectSettings
from feedrate.results.tables import run_columns, run_row, unsupported_row, write_rows

Row = dict[str, Any]


def collect(
    records: Iterable[str],
    settings: Mapping[str, Any],
    results_csv: str,
    results_parquet: str,
    cells_csv: str,
) -> None:
    """Write the three result files from the record files at `records`.

    `settings` is what `feedrate.results.settings.collect_settings` gives. Raises ConfigError and
    RecordError, before anything is written.
    """
    checked = convert(dict(settings), CollectSettings, "--settings")
    rows = run_rows(records, checked)
    columns = run_columns(dict(checked.studies))
    cells = cell_rows(rows, checked)
    write_rows(Path(results_csv), columns, rows)
    write_parquet(Path(results_parquet), columns, rows)
    write_rows(Path(cells_csv), cell_columns(checked), cells)


def run_rows(records: Iterable[str], settings: CollectSettings) -> list[Row]:
    """A row for each record and each unsupported cell, in the order of the configuration:
    by study, device, levels, repeat."""
    rows = [run_row(read_record(Path(path)), path) for path in records]
    rows += [unsupported_row(cell) for cell in settings.unsupported]
    for row in rows:
        if row["study"] not in settings.studies:
            raise ConfigError(f"{row['record']}: study {row['study']!r} is not in --settings")
    studies, devices = list(settings.studies), list(settings.memory_gib)
    ranks = {
        name: {f: {x: i for i, x in enumerate(e.levels)} for f, e in study.factors.items()}
        for name, study in settings.studies.items()
    }

    def place(row: Row) -> tuple[Any, ...]:
        levels = ranks[row["study"]]
        return (
            studies.index(row["study"]),
            devices.index(row["device"]) if row["device"] in devices else len(devices),
            [known.get(row[factor], len(known)) for factor, known in levels.items()],
            row["repeat"],
        )

    return sorted(rows, key=place)


def write_parquet(path: Path, columns: Sequence[Column], rows: Sequence[Row]) -> None:
    """Write rows as Parquet, atomically, with a type and a description for every column."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    types = {"text": pa.string(), "integer": pa.int64(), "number": pa.float64(), "flag": pa.bool_()}
    fields = [
        pa.field(c.name, types[c.kind], metadata={"unit": c.unit, "description": c.description})
        for c in columns
    ]
    arrays = [
        pa.array([_as_kind(row.get(c.name), c.kind) for row in rows], type=types[c.kind])
        for c in columns
    ]
    with atomic_path(path) as temporary:
        pq.write_table(pa.Table.from_arrays(arrays, schema=pa.schema(fields)), temporary)


def _as_kind(value: Any, kind: str) -> Any:
    return value if value is None or kind != "text" else level_text(value)


def main(arguments: list[str] | None = None) -> int:
    """0 where the three files were written; 1, and one sentence, where they were not."""
    parser = argparse.ArgumentParser(
        prog="feedrate.results.collect",
        description="Records to result files.",
        fromfile_prefix_chars="@",
    )
    parser.add_argument(
        "--records-list", required=True, help="file with a record's path a line; - for stdin"
    )
    parser.add_argument("--settings", required=True, help="collect_settings, a Python literal")
    parser.add_argument("--out-csv", required=True)
    parser.add_argument("--out-parquet", required=True)
    parser.add_argument("--cells", required=True)
    options = parser.parse_args(arguments)
    try:
        collect(
            read_list(options.records_list),
            convert_text(options.settings, dict[str, Any], "--settings"),
            options.out_csv,
            options.out_parquet,
            options.cells,
        )
    except (ConfigError, RecordError, OSError) as error:
        return fail(parser.prog, error)
    return 0


if __name__ == "__main__":
    sys.exit(main())
