import re
from pathlib import Path

import pytest

from feedrate.results.checks import CHECKS
from feedrate.results.columns import (
    CELLS,
    CLAIMS,
    COMPARISON,
    FACTORS,
    FIT,
    QUALITY,
    RUNS,
    with_factors,
)

DOCS = Path(__file__).parents[3] / "docs" / "results.md"
FILES = {
    "results.csv and results.parquet": RUNS,
    "cells.csv": CELLS,
    "claims.csv": CLAIMS,
    "fit.csv": FIT,
    "quality.csv": QUALITY,
    "Compare two sets of results": COMPARISON,
}


def table_of(heading, first):
    """The rows of the table under a heading that begins with the column `first`."""
    text = DOCS.read_text(encoding="utf-8")
    section = re.split(r"^#{2,3} ", text, flags=re.MULTILINE)
    body = "\n".join(part for part in section if part.startswith(heading + "\n"))
    lines = body[body.index(f"| {first} |") :].splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return rows[2 : next((i for i, r in enumerate(rows) if r == [""]), len(rows))]


@pytest.mark.parametrize("heading", FILES)
def test_the_documentation_lists_exactly_the_columns(heading):
    documented = [tuple(row) for row in table_of(heading, "column")]
    assert documented == [tuple(column) for column in FILES[heading]]


def test_the_documentation_lists_exactly_the_checks():
    documented = [row[0] for row in table_of("Checks", "check")]
    assert documented == [*CHECKS, "logs_readable"]


@pytest.mark.parametrize("columns", FILES.values(), ids=FILES)
def test_names_are_unique_and_every_column_is_described(columns):
    names = [column.name for column in columns]
    assert len(set(names)) == len(names)
    assert all(column.description.endswith(".") for column in columns)
    assert all(column.unit for column in columns if column.name.endswith(("_s", "_gib", "_share")))


def test_names_that_others_rely_on():
    names = {column.name for column in RUNS}
    assert names >= {
        "study", "device", "cell", FACTORS, "repeat", "status", "samples_per_s",
        "step_time_median_s", "data_wait_share", "peak_memory_gib", "mfu",
        "trainer_samples_per_s",
    }  # fmt: skip


def test_factors_stand_where_their_place_is_held():
    columns = with_factors(RUNS, {"workers": "integer", "batch_size": "integer"})
    names = [column.name for column in columns]
    assert names[:5] == ["study", "device", "cell", "workers", "repeat"]
    assert names.count("batch_size") == 1
    assert FACTORS not in names
