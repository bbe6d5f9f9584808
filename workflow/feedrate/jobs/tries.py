"""Results that earlier jobs decide, so that nothing is trained.

Earlier tries of a run decide its result if Slurm ended them for lack of memory or time. A cell that
ran out of memory decides for cells that need more: in a study's `ladder`, later levels need more
memory.
"""

import json
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from feedrate.core import slurm
from feedrate.core.paths import OUTCOME_NAME
from feedrate.jobs.events import NOT_TRIED, Result
from feedrate.jobs.workplace import NO_CALL, Workplace, leftovers


def result_of_earlier_tries(run: Path, mine: Workplace) -> Result | None:
    """The result that the earlier tries of this call decide: too little memory, or the longest time
    limit. None if this try may do better: after a lost node, a preemption, or a shorter limit."""
    if mine.since == NO_CALL:
        return None
    numbers = [place.job for place in leftovers(run) if place.since == mine.since]
    jobs = [slurm.find(number) for number in numbers if number not in ("", mine.job)]
    ends = [job for job in jobs if job and job.is_over]
    last = ends[-1] if ends else None
    if last and last.state == slurm.OUT_OF_MEMORY:
        asked = f" of {last.memory}" if last.memory else ""
        return Result(
            "out_of_memory",
            f"Slurm killed the job for lack of host memory: its limit{asked} on {last.nodes} was "
            "too low; to try it with more, raise job.memory_gib of the device, or mem_mb in the "
            f"profile, and call again with --forcerun {run / OUTCOME_NAME}",
        )
    if last and last.state == slurm.TIMEOUT:
        limits = [end.limit_min for end in ends if end.state == slurm.TIMEOUT and end.limit_min]
        return _out_of_time(limits, slurm.find(mine.job))
    return None


def _out_of_time(limits: Sequence[float], this: slurm.Job | None) -> Result | None:
    """The result of tries that hit these limits; None if this try's limit is or may be longer."""
    if this is None and len(limits) < 2:
        return None
    if this is not None and (this.limit_min is None or this.limit_min > max(limits, default=0.0)):
        return None
    listed = " and then ".join(f"{limit:g} min" for limit in limits)
    return Result(
        "failed",
        f"Slurm stopped the job at its time limit, {listed}: raise protocol.timeout_min, or the "
        "rule's runtime in the profile",
    )


def smaller_out_of_memory(runs: Iterable[Path]) -> Path | None:
    """Of these runs, of cells that need no more memory, one that ran out of memory, and of whose
    cell no run fitted; None if there is none. Runs that were not tried show nothing."""
    cells: dict[Path, dict[Path, str]] = {}
    for run in runs:
        with suppress(OSError, ValueError, KeyError):
            outcome = json.loads((run / OUTCOME_NAME).read_text(encoding="utf-8"))
            if "smaller" not in outcome:
                cells.setdefault(run.parent, {})[run] = outcome["status"]
    for statuses in cells.values():
        for run, status in statuses.items():
            if status == "out_of_memory" and "ok" not in statuses.values():
                return run
    return None


def not_tried(cell: str) -> str:
    """The cause for a cell that is too large because the smaller `cell` was."""
    return f"{NOT_TRIED}{cell} ran out of memory, and this cell needs at least as much."
