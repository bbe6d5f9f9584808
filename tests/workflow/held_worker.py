"""A worker that a test holds or kills: `held_worker.py (after_step|untrained) worker OPTIONS`.

after_step   The first start of a run's processes makes the FIFO `held` in its folder after
             its first step, and waits until a test has written to it. Later ones do not wait.
untrained    Only says that it has made a step, makes `held`, and waits to be killed. It does not
             import torch, which takes seconds.
"""

import os
import sys
from pathlib import Path
from typing import Any

from feedrate.cli import jobs
from feedrate.jobs import events, worker

WORDS = sys.argv[2:]
RUN = Path(WORDS[WORDS.index("--run") + 1])
write = events.EventLog.write


def hold() -> None:
    """Wait until a test writes to `held`."""
    (RUN / "held").unlink(missing_ok=True)  # of processes that were killed
    os.mkfifo(RUN / "held")
    (RUN / "held").read_text()
    (RUN / "held").unlink()


def write_and_hold(log: events.EventLog, event: events.Event) -> None:
    write(log, event)
    if isinstance(event, events.Step):
        events.EventLog.write = write
        hold()


def run_job(*arguments: Any) -> None:
    """What the worker runs instead of training."""
    (log,) = (one for one in arguments if isinstance(one, events.EventLog))
    log.write(events.Step(rank=log.rank, step=1, step_s=1.0))
    hold()


if __name__ == "__main__":
    if sys.argv[1] == "untrained":
        worker.JOBS = {"training": "__main__"}
    elif Path("trainings").read_text().count(f"{RUN.parent}/") == 1:  # the only repeat of a cell
        events.EventLog.write = write_and_hold
    sys.exit(jobs.run(WORDS[0], WORDS[1:]))
