"""A training job under the suite, compared with a bare run of the same Trainer settings."""

import json
import statistics
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.default_study import FEEDRATE, ROOT, default_spec, job_environment, prepare_default
from benchmarks.figure import Figure
from benchmarks.process import run

PAIRS = 5
SHARE = 0.02
GOAL_S = 3.0


def measure() -> Iterator[Figure]:
    """Seconds that a job takes beyond 1.02 times the bare one: median of interleaved pairs."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        prepared = prepare_default(folder)
        spec = default_spec()
        spec_path = folder / "spec.json"
        spec_path.write_text(json.dumps(spec))
        suite = [*FEEDRATE, "train", "--spec", str(spec_path), "--quiet", "--try", "1"]
        suite += ["--data", str(prepared / "manifest.json"), "--source-digest", ""]
        bare = [sys.executable, "-m", "benchmarks.bare_trainer", str(spec_path), str(prepared)]
        root = {**job_environment(), "PYTHONPATH": str(ROOT)}
        extra_s, walls = [], []
        for pair in range(PAIRS):
            with_suite = run([*suite, "--out", str(folder / f"run{pair}")], folder)
            without = run([*bare, str(folder / f"bare{pair}")], folder, root)
            extra_s.append(with_suite.wall_s - (1 + SHARE) * without.wall_s)
            walls.append((with_suite.wall_s, without.wall_s))
        note = "{:.1f} s, bare {:.1f} s".format(*walls[-1])
        name = "training job: beyond 2% of the bare job"
        yield Figure(name, statistics.median(extra_s), GOAL_S, "s", note)
