"""Per-step measurements of the runs, from their events."""

from dataclasses import dataclass
from pathlib import Path

from feedrate import paths
from feedrate.logs import LogError
from feedrate.logs.events import Step, read_events
from feedrate.report.rows import Inputs, RunRow


@dataclass(frozen=True)
class Trace:
    """The steps of one run, as rank 0 saw them."""

    run: RunRow
    steps: list[Step]


def traces(inputs: Inputs, study: str) -> list[Trace]:
    """The runs that left steps, in the order of results.csv; a broken events file has none."""
    found = []
    for run in inputs.runs(study):
        events = Path(run.record).with_name(Path(paths.EVENTS).name) if run.record else None
        try:
            steps = read_events(events, 0).steps if events else []
        except (OSError, LogError):
            continue
        if steps:
            found.append(Trace(run, steps))
    return found
