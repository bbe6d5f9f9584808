"""Experiment trackers: the Trainer's own integrations, which can slow or fail no measured job.

A tracker is called where the Trainer logs, between two steps. The meter is paused in these calls,
so that rank 0 does not count them; other ranks wait for rank 0, and theirs count. A note says what
they took. A tracker that raises an error is not called again.
"""

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from time import perf_counter
from types import FrameType
from typing import Any

from feedrate.config.spec import RunSpec
from feedrate.core import variables
from feedrate.core.errors import Masker
from feedrate.jobs.events import EventLog, Note
from feedrate.jobs.meter import Meter

PROJECT = "feedrate"
"""The project or experiment of the runs, unless the user's variables name another."""
NEEDS = {
    "mlflow": {"MLFLOW_TRACKING_URI": "http://host:5000"},
    "trackio": {},
    "wandb": {"WANDB_MODE": "offline", "WANDB_API_KEY": "your key"},
}
"""The variables that say where a tracker's runs go, with examples. A tracker needs one of its
variables: without it, mlflow would write into the project's folder, and wandb would fail in each
job."""
DEFAULTS = {
    "WANDB_PROJECT": PROJECT,
    "MLFLOW_EXPERIMENT_NAME": PROJECT,
    "TRACKIO_PROJECT": PROJECT,
    # A server that does not answer must not hold up the job.
    "WANDB_INIT_TIMEOUT": "20",
    "WANDB_FINISH_TIMEOUT": "30",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    # Nothing beside the Trainer's figures: no samples of the machine, which cost time, no output
    # and no address of a repository, which may hold a token.
    "WANDB__DISABLE_STATS": "true",
    "WANDB_CONSOLE": "off",
    "WANDB_DISABLE_GIT": "true",
    "WANDB_DISABLE_CODE": "true",
    "MLFLOW_ENABLE_SYSTEM_METRICS_LOGGING": "false",
}
"""Variables of the trackers, where the user has not set them."""
CALL_S = 60.0
"""Time that a call of a tracker may take, s; the trackers' own limits above are shorter."""
START, LOG, CLOSE = "on_train_begin", "on_log", "on_train_end"


def trackio_server() -> str:
    """The address of trackio's own server, as trackio finds it; empty: a folder or a Space."""
    has_space = os.environ.get("TRACKIO_SPACE_ID")
    return "" if has_space else os.environ.get("TRACKIO_SERVER_URL", "").strip()


def lacks(name: str) -> str:
    """A sentence about what the tracker lacks in this environment; empty if it can be used."""
    needed = NEEDS[name]
    if name == "trackio" and (server := trackio_server()) and "write_token=" not in server:
        needed = {"TRACKIO_WRITE_TOKEN": "the server's"}
    if not needed or any(os.environ.get(variable, "").strip() for variable in needed):
        return ""
    examples = " or ".join(f"{variable} ({value})" for variable, value in needed.items())
    return f"{name} needs the environment variable {examples}"


def set_defaults(folder: Path) -> None:
    """Set the trackers' variables that the user has not set; wandb keeps files under `folder`."""
    for name, value in {**DEFAULTS, "WANDB_DIR": str(folder)}.items():
        os.environ.setdefault(name, value)
    folder.mkdir(parents=True, exist_ok=True)


def make_trackers(log: EventLog, meter: Meter | None, folder: Path) -> "list[Tracker]":
    """The callbacks of the trackers that the driver asks for; `folder` is the Trainer's."""
    chosen = [name for name in os.environ.get(variables.TRACKERS, "").split(",") if name]
    if chosen:
        set_defaults(folder)
    # A class for each, because the Trainer warns of a second callback of the same class.
    return [type(f"{name}Tracker", (Tracker,), {})(name, log, meter) for name in chosen]


def name_run(arguments: Any, spec: RunSpec) -> None:
    """Give TrainingArguments the run's name, and trackio's project where it is an argument."""
    arguments.run_name = f"{spec.study} {spec.device} {spec.cell} rep{spec.repeat}"
    if hasattr(arguments, "project"):
        arguments.project = os.environ.get("TRACKIO_PROJECT", PROJECT)


class Tracker:
    """A callback of the Trainer that passes its events on to an integration."""

    def __init__(self, name: str, log: EventLog, meter: Meter | None) -> None:
        self.name, self._log, self._meter = name, log, meter
        self._callback: Any = None
        self._end: partial[None] | None = None
        self._calls, self._seconds, self.failed = 0, 0.0, False

    def __getattr__(self, event: str) -> Any:
        """Events, which the Trainer looks up by their names."""
        if event.startswith("on_"):
            return partial(self._pass_on, event)
        raise AttributeError(event)

    def _pass_on(self, event: str, *args: Any, **given: Any) -> None:
        if self.failed or (self._callback is None and event != START):
            return
        if event == CLOSE:  # evaluations log after it, and would begin another run
            self._end = partial(self._try, event, *args, **given)
            return
        started_s = perf_counter()
        with self._meter.paused() if self._meter and event == LOG else nullcontext():
            self._try(event, *args, **given)
        if event == LOG:
            self._calls, self._seconds = self._calls + 1, self._seconds + perf_counter() - started_s

    def _try(self, event: str, *args: Any, **given: Any) -> None:
        """Call the integration; an error is noted, and ends the tracking, not the job."""
        try:
            with deadline(CALL_S):
                if self._callback is None:
                    self._callback = integration(self.name)
                getattr(self._callback, event)(*args, **given)
                if event == CLOSE and self.name == "wandb":
                    sys.modules["wandb"].finish()  # its integration waits for the process's end
        except Exception as error:
            self.failed = True
            self._note(f"{self.name} failed, its run ends here: {error}", type(error).__name__)

    def close(self) -> None:
        """End the tracker's run: what follows is not disturbed by it."""
        if self._end is not None and not self.failed:
            self._end()
        self._callback = None
        if self._calls and self._log.rank == 0:
            self._note(f"{self.name}: {self._seconds:.3f} s in {self._calls} calls")

    def _note(self, message: str, kind: str = "") -> None:
        rank, message = self._log.rank, Masker()(message)
        self._log.write(Note(rank=rank, about="tracker", type=kind, message=message))


def integration(name: str) -> Any:
    """The Trainer's callback for a tracker. Raises what the tracker's import raises."""
    from transformers.integrations import get_reporting_integration_callbacks

    callback = get_reporting_integration_callbacks([name])[0]()
    if name == "trackio":  # no variable switches its samples of the machine off
        trackio: Any = sys.modules["trackio"]
        trackio.init = partial(trackio.init, auto_log_cpu=False, auto_log_gpu=False)
    return callback


@contextmanager
def deadline(seconds: float) -> Iterator[None]:
    """Raise TimeoutError in this thread, the main one, if the block takes longer."""

    def stop(_number: int, _frame: FrameType | None) -> None:
        raise TimeoutError(f"no answer within {seconds:g} s")

    handler = signal.signal(signal.SIGALRM, stop)
    rest = signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, *rest)
        signal.signal(signal.SIGALRM, handler)
