"""A training job under the suite, compared with a bare run of the same Trainer settings."""

import copy
import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from benchmarks.default_study import ROOT, default_spec, feedrate, job_environment, prepare_default
from benchmarks.figure import Figure
from benchmarks.process import run

PAIRS, SHARE, GOAL_S = 5, 0.02, 3.0
PARTS = 4
"""Live, loader and model blocks have `ceiling_s` each; their starts and the stages take as much."""


def measure() -> Iterator[Figure]:
    """Seconds that a job takes beyond 1.02 times the bare one: medians of interleaved jobs. Its
    rounds after the window are measurement, and have a figure of their own."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        prepared, spec = prepare_default(folder), default_spec()
        rounds_goal_s = PARTS * spec["protocol"]["ceiling_s"]
        plain = copy.deepcopy(spec)
        plain["protocol"]["ceiling_s"] = 0.0
        specs = {"whole": spec, "plain": plain}
        for job, its_spec in specs.items():
            (folder / f"{job}.json").write_text(json.dumps(its_spec))
        bare = [sys.executable, "-m", "benchmarks.bare_trainer", str(folder / "plain.json")]
        environment = {**job_environment(), "PYTHONPATH": str(ROOT)}
        beyond_s, rounds_s = [], []
        for pair in range(PAIRS):
            options = {"data": prepared / "manifest.json", "try": 1}
            whole_s, plain_s = (
                feedrate(
                    folder, "train", spec=folder / f"{j}.json", out=folder / f"{j}{pair}", **options
                ).wall_s
                for j in specs
            )
            bare_s = run([*bare, str(prepared), str(folder / f"bare{pair}")], folder, environment)
            rounds_s.append(whole_s - plain_s)
            beyond_s.append(plain_s - (1 + SHARE) * bare_s.wall_s)
    names = ("without its rounds, beyond 2% of the bare job", "its rounds", "both")
    goals_s = (GOAL_S, rounds_goal_s, GOAL_S + rounds_goal_s)
    both_s = map(sum, zip(beyond_s, rounds_s, strict=True))
    for what, values_s, goal_s in zip(names, (beyond_s, rounds_s, both_s), goals_s, strict=True):
        yield Figure(f"training job: {what}", median(values_s), goal_s, "s")
