"""The gate: a small study, compared with the last accepted results, and the table that it posts."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from feedrate.__main__ import COMMANDS
from result_sets import AFTER, runs, write_set

ROOT = Path(__file__).resolve().parents[3]
SHIM = """#!/usr/bin/env bash
# `feedrate run` brings the results of the folder `measured`; all else is the real program.
if [ "$3" = run ]; then
    printf '%s\\n' "$*" >ran.txt
    [ -d measured ] && cp -r measured/. results/
    exit "$(cat exit.txt 2>/dev/null || echo 0)"
fi
exec {python} "$@"
"""


@pytest.fixture
def root(tmp_path):
    """A clone whose next run measures what is in `measured`."""
    (tmp_path / ".ci").mkdir()
    shutil.copy(ROOT / ".ci/gate", tmp_path / ".ci/gate")
    (tmp_path / "Snakefile").write_text("")
    python = tmp_path / ".venv/bin/python"
    python.parent.mkdir(parents=True)
    python.write_text(SHIM.format(python=sys.executable))
    python.chmod(0o755)
    (tmp_path / "results").mkdir()
    write_set(tmp_path / "measured", runs(0, 100.0, 101.0), runs(1, 50.0, 51.0))
    (tmp_path / "measured/results.csv").touch()
    return tmp_path


def gate(root, *words, **variables):
    return subprocess.run(
        [root / ".ci/gate", *words],
        env={**os.environ, "GITHUB_STEP_SUMMARY": "", **variables},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_first_results_are_accepted_and_a_slower_cell_fails_with_a_table(root):
    accepted = root / "accepted"
    first = gate(root, accepted, "0.1", "--study", "loading")
    assert first.returncode == 0, first.stderr
    assert (root / "ran.txt").read_text() == "-m feedrate run --study loading\n"
    assert (accepted / "results.csv").is_file()
    write_set(root / "measured", runs(0, 70.0, 71.0, day=AFTER), runs(1, 50.0, 51.0, day=AFTER))
    summary = root / "summary.md"
    told = {"GITHUB_STEP_SUMMARY": str(summary), "GATE_POST": "cat >posted.md"}
    slower = gate(root, accepted, "0.1", **told)
    assert slower.returncode == 1
    assert "slower by more than 0.1" in slower.stderr
    table = (root / "posted.md").read_text()
    assert "**loading**" in table
    assert "| cpu | workers=0 | 100.5 | 70.5 | 0.7015 |" in table
    assert summary.read_text() == table == slower.stdout
    # What failed is not accepted by itself, but on request.
    assert gate(root, accepted, "0.1").returncode == 1
    assert gate(root, "--accept", accepted).returncode == 0
    assert gate(root, accepted, "0.1").returncode == 0


def test_a_run_that_fails_is_never_a_pass(root):
    accepted = root / "accepted"
    (root / "exit.txt").write_text("3")
    assert gate(root, accepted, "0.1").returncode == 3
    assert not accepted.exists()
    shutil.rmtree(root / "measured")
    (root / "results/results.csv").unlink()
    without = gate(root, accepted, "0.1")
    assert (without.returncode, "left no results" in without.stdout) == (1, True)


def test_the_examples_call_programs_that_exist():
    workflow = yaml.safe_load((ROOT / ".github/workflows/gate.yml").read_text())
    steps = " ".join(step.get("run", "") for step in workflow["jobs"]["compare"]["steps"])
    batch = ROOT / "profiles/slurm/gate.sbatch"
    assert subprocess.run(["bash", "-n", batch], check=False).returncode == 0
    for text in (steps, batch.read_text()):
        assert ".ci/gate" in text
        device, study = re.search(r"train_(\w+|\$)", text), "bridgetower-dataloading"
        assert device
        assert study in text
        assert (ROOT / f"config/studies/{study}.yaml").is_file()
    assert os.access(ROOT / ".ci/gate", os.X_OK)
    assert {"run", "compare"} <= COMMANDS.keys()
