"""Jobs for tests: supervisors that do not outlive their test, and inference in this process."""

import sys
from pathlib import Path

import pytest
from meter_parts import Clock
from training_jobs import Job, inference_spec, read_events

from feedrate.config.spec import RunSpec
from feedrate.devices.placement import Placement
from feedrate.jobs import meter
from feedrate.jobs.events import EventLog

RUN = "runs/study/cpu/workers=0/rep1-0123abcd-2"


@pytest.fixture
def clock(monkeypatch):
    """The clock of the meter."""
    clock = Clock()
    monkeypatch.setattr(meter, "perf_counter", clock)
    return clock


@pytest.fixture
def start(tiny_prepared, tmp_path):
    """Start a supervisor; what still runs when the test ends is killed."""
    jobs: list[Job] = []

    def _start(spec: RunSpec, *options: str, prepared: Path = tiny_prepared, **more) -> Job:
        jobs.append(Job(spec, prepared, tmp_path / RUN, *options, **more))
        return jobs[-1]

    yield _start
    for job in jobs:
        if job.process.poll() is None:
            job.process.kill()
        job.process.wait()
        job.process.stderr.close()


@pytest.fixture
def infer(tiny_prepared, tmp_path):
    """Run one rank of a spec, or of one with these settings; its events."""
    from feedrate.jobs.infer import run_job
    from feedrate.jobs.worker import Options

    def _infer(spec=None, **settings):
        run = tmp_path / "run"
        run.mkdir(exist_ok=True)
        spec = spec or inference_spec(**settings)
        # What torch.compile counted in other tests is not this run's.
        getattr(sys.modules.get("torch._dynamo.utils"), "counters", {}).clear()
        run_job(spec, tiny_prepared, run, EventLog(run, 0), Placement(2, [0]), Options())
        return read_events(run / "events.jsonl")

    return _infer
