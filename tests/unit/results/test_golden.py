"""Run folders that an earlier version wrote give the same records and tables now. Their numbers in
the reports, and the tables by study, are compared in tests/unit/project/test_goldens.py."""

import csv
import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from golden.freeze import GOLDEN, PROSE, REMOVED_COLUMNS, make_again, numbers, same

STUDIES = ("bridgetower-dataloading", "bridgetower-learning")
RECORDS = [f"results/{study}/cpu/records.jsonl" for study in STUDIES]
TABLES = ("results.csv", "cells.csv", "answers.csv", "claims.csv")
SENTENCES = {*PROSE, "reading", "note", "detail", "description"}
"""Columns and keys that hold sentences. Only the numbers in them are compared."""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("golden") / "project"
    make_again(GOLDEN, root)
    return root


def assert_same(old, new, where=""):
    """All that `old` holds is in `new`, which may say more."""
    key = where.rpartition(".")[2]
    if isinstance(old, dict):
        old = {name: value for name, value in old.items() if name not in REMOVED_COLUMNS}
        assert old.keys() <= new.keys(), where
        for name, value in old.items():
            assert_same(value, new[name], f"{where}.{name}")
    elif key == "checks":
        assert_same(*({check["name"]: check for check in checks} for checks in (old, new)), where)
    elif isinstance(old, list):
        assert len(old) == len(new), where
        for one, other in zip(old, new, strict=True):
            assert_same(one, other, where)
    elif key in SENTENCES and isinstance(old, str):
        assert numbers(old) == numbers(new), f"{where}: {old!r}, now {new!r}"
    else:
        assert same(old, new), f"{where}: {old!r}, now {new!r}"
        assert type(old) is type(new), where


@pytest.mark.parametrize("name", RECORDS)
def test_records_are_the_same(made, name):
    old, new = (
        {(one["cell"], one["repeat"]): one for one in map(json.loads, (root / name).open())}
        for root in (GOLDEN, made)
    )
    assert_same(old, new)


def read_text(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as stream:
        return list(csv.DictReader(stream))


@pytest.mark.parametrize("name", TABLES)
def test_result_files_of_all_studies_are_the_same(made, name):
    old, new = (read_text(root / "results" / name) for root in (GOLDEN, made))
    assert_same(old, new)


def test_parquet_is_the_same(made):
    name = f"results/{STUDIES[0]}/results.parquet"
    old, new = (pq.read_table(root / name) for root in (GOLDEN, made))
    old = old.drop_columns([name for name in old.column_names if name in REMOVED_COLUMNS])
    for field in old.schema:
        other = new.schema.field(field.name)
        assert other.type == field.type
        assert other.metadata[b"unit"] == field.metadata[b"unit"]
    assert_same(old.to_pylist(), new.select(old.column_names).to_pylist())
