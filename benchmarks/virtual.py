"""Virtual speed-ups against real ones: a delay is planted in decoding, a block of the same training
predicts the rate with decoding twice as fast, and then the delay is really made so much shorter.

`python -m benchmarks virtual`; each row is one number of workers and one kind of delay: `busy` uses
a core as decoding does, `idle` waits as a slow disk does.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter, sleep
from typing import Any

from benchmarks.default_study import ROOT, default_spec, job_environment, prepare_default
from benchmarks.figure import Figure

PLANTED_S = 0.03
"""Planted delay per picture before it is halved, decoding itself included."""
GOAL = 0.1
"""Largest error of a prediction, relative to the real rate."""


def measure() -> Iterator[Figure]:
    """Errors of the predicted rates, and the agreement of `live` blocks with the window."""
    with tempfile.TemporaryDirectory() as name:
        prepared = prepare_default(Path(name))
        for workers in (0, 1, 2):
            for kind in ("busy", "idle"):
                folder = Path(name) / f"{workers}-{kind}"
                slow = train(folder / "slow", prepared, workers, kind, PLANTED_S)
                fast = train(folder / "fast", prepared, workers, kind, PLANTED_S / 2)
                predicted, real = rate(virtual(slow, 0.5)), rate(live(fast))
                yield Figure(
                    f"virtual: {workers} workers, {kind} delay halved",
                    abs(predicted / real - 1),
                    GOAL,
                    "share",
                    f"{rate(live(slow)):.1f} to {predicted:.1f} predicted, {real:.1f} real",
                )
                window = next(e for e in slow if e["event"] == "window")
                off = rate(live(slow)) / rate([window]) - 1
                yield Figure(f"live to window, {workers} workers, {kind}", abs(off), GOAL, "share")


def train(
    folder: Path, prepared: Path, workers: int, kind: str, planted_s: float
) -> list[dict[str, Any]]:
    """The events of a training whose pictures take at least `planted_s` to decode."""
    folder.mkdir(parents=True)
    command = [sys.executable, "-m", "benchmarks.virtual", str(folder), str(prepared)]
    subprocess.run(
        [*command, str(workers), kind, str(planted_s)],
        cwd=ROOT,
        env=job_environment(),
        check=True,
        capture_output=True,
    )
    lines = (folder / "events.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def live(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The blocks of training as in the window."""
    return [e for e in events if e["event"] == "ceiling" and e["kind"] == "live"]


def virtual(events: list[dict[str, Any]], share: float) -> list[dict[str, Any]]:
    """The blocks with decoding virtually faster by `share`."""
    return [e for e in events if e["event"] == "virtual" and e["share"] == share]


def rate(blocks: list[dict[str, Any]]) -> float:
    """Samples per second of blocks together, without the delays that were inserted."""
    wall_s = sum(block["wall_s"] - block.get("delayed_s", 0.0) for block in blocks)
    return float(sum(block["samples"] for block in blocks) / wall_s)


def job(folder: Path, prepared: Path, workers: int, kind: str, planted_s: float) -> None:
    """Train in this process; workers are forked, so the delay is planted in them too."""
    from feedrate.config.spec import RunSpec
    from feedrate.config.values import convert
    from feedrate.devices.placement import Placement
    from feedrate.jobs.events import EventLog
    from feedrate.jobs.train import run_job
    from feedrate.jobs.worker import Options
    from feedrate.loading.decoders import host

    usual = host.decode_levels

    def slow(*arguments: Any) -> Any:
        end_s = perf_counter() + planted_s
        decoded = usual(*arguments)
        if kind == "idle":
            sleep(max(0.0, end_s - perf_counter()))
        while perf_counter() < end_s:
            pass
        return decoded

    host.decode_levels = slow  # type: ignore[assignment]  # a planted delay
    spec = default_spec()
    spec["settings"]["loader"] |= {"decode": "host", "workers": workers, "oversubscribe": True}
    spec["protocol"] |= {"steps": 30, "warmup_steps": 10, "ceiling_s": 6.0, "virtual": ["decode"]}
    made = convert(spec, RunSpec, "benchmark")
    (folder / "spec.json").write_text(json.dumps(spec), encoding="utf-8")
    cores = sorted(os.sched_getaffinity(0))
    run_job(made, prepared, folder, EventLog(folder, 0), Placement(len(cores), cores), Options())


if __name__ == "__main__":
    job(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), sys.argv[4], float(sys.argv[5]))
