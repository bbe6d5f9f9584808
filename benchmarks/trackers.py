"""Throughput of a training job with each installed tracker, beside the same job without one."""

import importlib.util
import json
import os
import statistics
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.default_study import default_spec, prepare_default
from benchmarks.figure import Figure
from benchmarks.process import run
from feedrate.core import variables
from feedrate.jobs.events import Window, read_run_events
from feedrate.jobs.trackers import NEEDS

ROUNDS = 5
STEPS, WARMUP_STEPS = 60, 10
GOAL = 0.95
"""Least ratio. Without a repeat's noise, a tracker outside of the timed steps would give 1."""


def measure() -> Iterator[Figure]:
    """Median over interleaved rounds of the rate with a tracker by that without, of one round.

    The window leaves out the tracker's own calls; the second figure counts them too. Trackers write
    into a folder, unless their variables name a server.
    """
    installed = [name for name in NEEDS if importlib.util.find_spec(name)]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        prepared = prepare_default(folder)
        spec = default_spec()
        spec["protocol"] |= {"steps": STEPS, "warmup_steps": WARMUP_STEPS, "ceiling_s": 0.1}
        spec["settings"]["train"]["logging_steps"] = 10
        (folder / "spec.json").write_text(json.dumps(spec))
        rounds = [
            {tracker: window(folder, prepared, tracker) for tracker in ("", *installed)}
            for _ in range(ROUNDS)
        ]
    for tracker in installed:
        pairs = [(one[tracker], one[""]) for one in rounds]
        rates = [a.samples / a.wall_s / (b.samples / b.wall_s) for a, b in pairs]
        whole = [b.wall_s / (a.wall_s + a.paused_s) for a, b in pairs]
        spread = f"{min(rates):.3f} to {max(rates):.3f} in {ROUNDS} rounds"
        yield Figure(
            f"{tracker}: rate over that without", statistics.median(rates), GOAL, "x", spread, False
        )
        called_s = statistics.median(a.paused_s for a, _ in pairs)
        note = f"{called_s:.3f} s in its calls"
        yield Figure(
            f"{tracker}: the same with its calls", statistics.median(whole), 0.0, "x", note, False
        )


def window(folder: Path, prepared: Path, tracker: str) -> Window:
    """The timed window of one job with this tracker; empty: with none."""
    out = Path(tempfile.mkdtemp(dir=folder))
    here = {
        variables.TRACKERS: tracker,
        "MLFLOW_TRACKING_URI": f"file:{folder}/mlflow",
        "MLFLOW_ALLOW_FILE_STORE": "true",
        "TRACKIO_DIR": f"{folder}/trackio",
        "WANDB_MODE": "online" if "WANDB_BASE_URL" in os.environ else "offline",
    }
    command = [sys.executable, "-m", "feedrate", "train", "--quiet", "--source-digest", ""]
    command += ["--spec", str(folder / "spec.json"), "--data", str(prepared / "manifest.json")]
    run([*command, "--attempt", "1", "--out", str(out)], folder, here | os.environ)
    events = read_run_events(out)[0]
    if events.window is None or [note for note in events.notes if note.type]:
        raise RuntimeError(f"the job with tracker {tracker!r} failed: {events.notes}")
    return events.window
