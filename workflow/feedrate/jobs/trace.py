"""A trace of training steps: what the host and the device did, and when. ui.perfetto.dev opens it.

A profiler slows the steps that it watches, so these come after all that is measured.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from torch._C._autograd import _profiler_enabled
from torch.profiler import profile, record_function, supported_activities

from feedrate.core.paths import TRACE_NAME
from feedrate.devices.base import Adapter
from feedrate.jobs import events
from feedrate.jobs.events import EventLog


def marked(stage: str) -> AbstractContextManager[object]:
    """A context that a trace shows by this name; without a profiler it does nothing."""
    return record_function(stage) if _profiler_enabled() else nullcontext()


def write_trace(
    adapter: Adapter, log: EventLog, folder: Path, step: Callable[[], None], steps: int
) -> None:
    """Write rank 0's trace of so many calls of `step` to `folder`, and a note that names it and
    says what it lacks. The other ranks only keep step."""
    named = {"CPU", adapter.profiled_as}
    watched = profile(activities=[one for one in supported_activities() if one.name in named])
    with watched if log.rank == 0 else nullcontext():
        for number in range(1, steps + 1):
            with marked(f"ProfilerStep#{number}"):  # PyTorch's own tools look for this name
                step()
        adapter.synchronize()
    if log.rank == 0:
        watched.export_chrome_trace(str(folder / TRACE_NAME))
        # A torch without the device's profiler, or a driver that forbids it, gives a trace too.
        lacks = adapter.profiled_as not in {event.device_type.name for event in watched.events()}
        lacking = f"; no events of {adapter.profiled_as}: torch or the driver does not profile it"
        log.write(events.Note(rank=0, about="trace", message=TRACE_NAME + lacking * lacks))
