"""`make run` after its installation: the whole default study, from nothing to report.html."""

import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.default_study import ROOT
from benchmarks.figure import Figure
from benchmarks.process import run

PARTS = ("Snakefile", "config", "workflow", "report", "envs", "profiles")
GOAL_MIN = 8.0


def measure() -> Iterator[Figure]:
    """Minutes of one run in a copy of the project."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for part in PARTS:
            source = ROOT / part
            copy = shutil.copytree if source.is_dir() else shutil.copy
            copy(source, folder / part)
        env = {"PYTHONPATH": str(folder / "workflow")}
        usage = run([sys.executable, "-m", "feedrate", "run", "--quiet"], folder, env)
        yield Figure("make run, after installation", usage.wall_s / 60, GOAL_MIN, "min")
