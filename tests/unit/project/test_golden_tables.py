"""tests/golden: every fault has its row, and the rows of the tables name tests that exist."""

import ast
from functools import cache
from pathlib import Path

import pytest
import yaml

from faults import read_faults

ROOT = Path(__file__).resolve().parents[3]
ROWS = read_faults()
FAULTS = {
    *("out of memory", "host out of memory", "killed worker", "killed supervisor"),
    *("killed driver", "scancel", "time limit", "dead node", "disk full", "damaged data"),
    *("damaged record", "NaN loss", "lost device", "second driver"),
}
EDITS = yaml.safe_load((ROOT / "tests/golden/edits.yaml").read_text(encoding="utf-8"))
CAUSES = {"infrastructure", "out_of_memory", "time_limit", "error", "invalid", "none"}


@cache
def defined_in(file):
    """The tests of a file."""
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def test_every_fault_has_its_rows_once():
    assert {row.fault for row in ROWS} == FAULTS
    assert len({(row.fault, row.where) for row in ROWS}) == len(ROWS)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.fault}, {row.where}")
def test_a_row_names_a_test_that_exists(row):
    file, _, name = row.test.partition("::")
    assert name in defined_in(file)
    assert row.where in ("job", "local", "slurm")
    assert row.status in ("ok", "failed", "out_of_memory", "invalid", "missing", "unchanged", None)
    assert row.cause in CAUSES


def test_edits_that_unit_tests_show_name_them():
    shown = [edit["test"].partition("::") for edit in EDITS.values() if "test" in edit]
    assert shown
    assert [name for file, _, name in shown if name not in defined_in(file)] == []
