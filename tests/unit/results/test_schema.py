"""The schema of measured values, and the columns that follow from it."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from feedrate.core.files import write_text
from feedrate.results.files import FACTORS, FILES, RUNS, with_factors

ROOT = Path(__file__).parents[3]
GOLDEN = ROOT / "tests/golden"
RUN = "runs/bridgetower-dataloading/cpu/workers=0~decode=reference~strategy=ddp/rep1-0a1b2c3d"

FIELD = """\
    step_time_range_s: Annotated[
        Number, value("s", "The slowest step minus the fastest.")
    ] = None
"""
MEASURED = "        step_time_range_s=max(times) - min(times),\n"
SHOW = """
import json, sys
from pathlib import Path
import pyarrow.parquet as pq
from docs import make_schemas as schemas
from feedrate.config.plan import Plan, make_plan
from feedrate.config.values import read_yaml
from feedrate.config.project import load_project
from feedrate.report.rows import CellRow, RunRow
from feedrate.results.assemble import parse_logs
from feedrate.results.collect import collect_results
from feedrate.results.study_plan import study_plan, write_plan

root, run = Path.cwd(), sys.argv[1]
project = load_project(root, read_yaml(root / "config/config.yaml"))
key = ("bridgetower-dataloading", "cpu", run.split("/")[3], 1)
plan = Plan(runs={key: make_plan(project).runs[key]}, unsupported=[])
file = write_plan(study_plan(project, key[0], plan, {key: run}, ""))
parse_logs(file, "cpu", root)
collect_results(file, root)
field = pq.read_schema("results.parquet").field("step_time_range_s")
record = json.loads(Path("cpu/records.jsonl").read_text())
print(json.dumps({
    "record": record["measurement"]["step_time_range_s"],
    "runs": Path("results.csv").read_text().splitlines()[0].split(","),
    "cells": Path("cells.csv").read_text().splitlines()[0].split(","),
    "parquet": [str(field.type), field.metadata[b"unit"].decode()],
    "docs": schemas.page(schemas.PAGE.read_text()).count("| step_time_range_s |"),
    "rows": ["step_time_range_s" in kind.__struct_fields__ for kind in (RunRow, CellRow)],
}))
"""


def insert_before(file: Path, line: str, added: str) -> None:
    text = file.read_text(encoding="utf-8")
    assert text.count(line) == 1
    file.write_text(text.replace(line, added + line), encoding="utf-8")


def test_a_new_measured_value_needs_two_edits(tmp_path):
    """One where it is measured, one in the schema; record, columns, types and docs follow."""
    package = tmp_path / "workflow/feedrate"
    shutil.copytree(ROOT / "workflow/feedrate", package)
    (tmp_path / "docs").mkdir()
    for file in ("results.md", "make_schemas.py"):
        shutil.copy(ROOT / "docs" / file, tmp_path / "docs" / file)
    for part in ("config", RUN):
        shutil.copytree(GOLDEN / part, tmp_path / part)
    insert_before(package / "results/schema.py", "    first_step_s: Annotated[", FIELD)
    line = "        block_noise=block_noise(times),\n"
    insert_before(package / "results/measurement.py", line, MEASURED)
    write_text(tmp_path / "show.py", SHOW)
    shown = subprocess.run(
        [sys.executable, "show.py", RUN],
        env={"PYTHONPATH": f"{tmp_path / 'workflow'}:{tmp_path}"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert shown.returncode == 0, shown.stderr
    found = json.loads(shown.stdout.splitlines()[-1])
    assert found["record"] > 0
    for file in ("runs", "cells"):
        columns = found[file]
        assert columns[columns.index("step_time_p99_s") + 1] == "step_time_range_s"
    assert found["parquet"] == ["double", "s"]
    assert found["docs"] == 1
    assert found["rows"] == [True, True]


@pytest.mark.parametrize("columns", FILES.values(), ids=FILES)
def test_names_are_unique_and_every_column_is_described(columns):
    names = [column.name for column in columns]
    assert len(set(names)) == len(names)
    assert all(column.description.endswith(".") for column in columns)
    assert all(column.unit for column in columns if column.name.endswith(("_s", "_gib", "_share")))


def test_factors_replace_their_placeholder():
    columns = with_factors(RUNS, {"workers": [1], "batch_size": [1]})
    names = [column.name for column in columns]
    assert names[:5] == ["study", "device", "cell", "workers", "site"]
    assert names.count("batch_size") == 1
    assert FACTORS not in names
