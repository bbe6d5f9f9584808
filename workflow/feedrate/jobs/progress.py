"""Progress of one job, told in a line now and then."""

import sys
import time
from collections.abc import Iterable

from feedrate.config.spec import RunSpec
from feedrate.jobs.events import RawEvent

EVERY_S = 5.0


class ProgressLine:
    """Says on stderr how far the job is, at most every `EVERY_S`; when quiet, nothing."""

    def __init__(self, spec: RunSpec, *, quiet: bool) -> None:
        self._spec, self._quiet = spec, quiet
        self._label = f"{spec.device} {spec.cell} rep {spec.repeat}"
        self._step = 0
        self._samples, self._time_s = 0, 0.0
        self._due_s = time.monotonic() + EVERY_S
        self._state = "starting"

    def update(self, events: Iterable[RawEvent]) -> None:
        """Take in rank 0's new events and tell, where a line is due."""
        for event in events:
            self._take(event)
        if time.monotonic() >= self._due_s:
            self._due_s = time.monotonic() + EVERY_S
            self.tell(self._state)

    def tell(self, text: str) -> None:
        """Print a line about this job."""
        if not self._quiet:
            print(f"{self._label}: {text}", file=sys.stderr, flush=True)

    def _take(self, event: RawEvent) -> None:
        match event["event"]:
            case "step":
                self._step = int(event["step"])
                if not event["warmup"]:
                    self._samples += int(event["samples"]) * self._spec.count
                    self._time_s += float(event["step_s"])
                self._state = self._steps()
            case "window" if self._spec.task == "training":
                self._state = "measuring loader and model alone"

    def _steps(self) -> str:
        steps = self._spec.protocol.steps
        if not self._samples:
            return f"step {self._step}/{steps}, warming up"
        done = self._step - self._spec.protocol.warmup_steps
        left_s = self._time_s / max(done, 1) * (steps - self._step)
        return (
            f"step {self._step}/{steps}, {self._samples / self._time_s:.1f} samples/s, "
            f"{left_s:.0f} s left"
        )
