"""The result files of all studies: merged, each kind into one file."""

from pathlib import Path

from feedrate.results.columns import FILES, with_factors
from feedrate.results.files import frame_of, read_csv, rows_of, write_parquet, write_result


def merge_results(runs: list[Path], cells: list[Path], claims: list[Path], out: Path) -> None:
    """Merge the files of all studies, each kind into a file of its name in the folder `out`."""
    import pandas as pd

    kinds = {"results.csv": runs, "cells.csv": cells, "claims.csv": claims}
    for name, files in kinds.items():
        known = FILES[name]
        tables = [pd.DataFrame(read_csv(file, known), dtype=object) for file in files]
        table = pd.concat(tables, ignore_index=True)
        factors = table.columns.drop([column.name for column in known], errors="ignore")
        columns = with_factors(known, {factor: table[factor].dropna() for factor in factors})
        rows = rows_of(table)
        write_result(out / name, columns, rows)
        if name == "results.csv":
            write_parquet(out / "results.parquet", columns, frame_of(rows, columns))
