"""Supervisors for tests, none of which outlives its test."""

from pathlib import Path

import pytest
from training_jobs import Job

from feedrate.config.settings import RunSpec


@pytest.fixture(scope="session", autouse=True)
def one_thread():
    """Threads that wait for each other on a busy machine would make tests slow."""
    import torch

    torch.set_num_threads(1)


@pytest.fixture
def start(tiny_prepared, tmp_path):
    """Start a supervisor; what still runs when the test ends is killed."""
    jobs: list[Job] = []

    def _start(spec: RunSpec, *options: str, prepared: Path = tiny_prepared, **more) -> Job:
        jobs.append(Job(spec, prepared, tmp_path / "out", *options, **more))
        return jobs[-1]

    yield _start
    for job in jobs:
        if job.process.poll() is None:
            job.process.kill()
        job.process.wait()
        job.process.stderr.close()
