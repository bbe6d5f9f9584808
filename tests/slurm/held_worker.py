"""A worker that holds after its first step until a test releases it: `held_worker.py OPTIONS`.

Only the first start of a run's processes holds. It makes the FIFO `held` in the run's folder, and
waits until a test has written to it.
"""

import os
import sys
from pathlib import Path

from feedrate.cli import jobs
from feedrate.jobs import events

RUN = Path(sys.argv[sys.argv.index("--run") + 1]).parent
write = events.EventLog.write


def write_and_hold(log: events.EventLog, event: events.Event) -> None:
    write(log, event)
    if isinstance(event, events.Step):
        events.EventLog.write = write
        os.mkfifo(RUN / "held")
        (RUN / "held").read_text()
        (RUN / "held").unlink()


if __name__ == "__main__":
    if Path("trainings").read_text().count(f"{RUN}/") == 1:
        events.EventLog.write = write_and_hold
    sys.exit(jobs.run("worker", sys.argv[1:]))
