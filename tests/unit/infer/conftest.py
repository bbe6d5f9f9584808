"""Jobs of the task `inference` in this process."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from inference_jobs import Events, make_spec, read_events

from feedrate.config.spec import RunSpec
from feedrate.devices.placement import Placement
from feedrate.jobs.events import EventLog
from feedrate.jobs.infer import run_job
from feedrate.jobs.opening import Options


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    """Threads that wait for each other on a busy machine would make tests slow."""
    import torch

    torch.set_num_threads(1)


@pytest.fixture
def infer(tiny_prepared: Path, tmp_path: Path) -> Callable[..., Events]:
    """Run one rank of a spec, or of one with these settings; its events."""

    def _infer(spec: RunSpec | None = None, **settings: Any) -> Events:
        run = tmp_path / "run"
        run.mkdir(exist_ok=True)
        made = spec or make_spec(**settings)
        run_job(made, tiny_prepared, run, EventLog(run, 0), Placement(2, [0]), Options())
        return read_events(run / "events.jsonl")

    return _infer
