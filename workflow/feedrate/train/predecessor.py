"""What became of the earlier tries of a job, where it is Slurm that ended them.

Most ends deserve another try: a node that was lost, a preemption, a time limit where the next one
is longer. Memory that did not suffice is a result, and so is the longest time that there is.
"""

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path

from feedrate.cluster import slurm
from feedrate.paths import OUTCOME_NAME
from feedrate.train.claim import Sight
from feedrate.train.holder import Identity
from feedrate.train.judge import Verdict

TIMEOUT = "TIMEOUT"

NEAR_MIN = 1.0
"""A job stopped so shortly before its limit was stopped for it: a site may warn ahead."""


def verdict_of(
    run: Path, earlier: Iterable[Sight], wanted: Identity, since: str, job: str
) -> Verdict | None:
    """The outcome that the earlier tries make certain; None where another try may do better.

    `earlier`: the claims on the run (its folder is `run`) before this one's, newest first; those
    count that a driver which began at `since` made for what is `wanted`. `job`: Slurm's number of
    this try's job.
    """
    tries = {
        sight.holder.job: sight
        for sight in reversed(list(earlier))
        if sight.holder
        and sight.holder.job not in ("", job)
        and sight.holder.since == since
        and sight.holder.identity.serves(wanted)
    }
    if not tries:
        return None
    ends = [_end(number, sight) for number, sight in tries.items()]
    last = ends[-1]
    if last.state == slurm.OUT_OF_MEMORY:
        asked = f" of {last.memory}" if last.memory else ""
        return Verdict(
            "out_of_memory",
            f"Slurm killed the job for want of host memory: its limit{asked} on {last.nodes} did "
            "not suffice; to try it with more, raise job.memory_gib of the device, or mem_mb in "
            f"the profile, and call again with --forcerun {run / OUTCOME_NAME}",
        )
    if last.state == TIMEOUT:
        limits = [end.limit_min for end in ends if end.state == TIMEOUT and end.limit_min]
        return _out_of_time(limits, slurm.find(job))
    return None


def ending_of_this_job() -> str:
    """Words for the next try on why Slurm stops this job, which `told` explains; none where it is
    not Slurm that does."""
    job = slurm.find(os.environ.get(slurm.JOB_ID, ""))
    if job is None:
        return ""
    ran_min = job.ran_min or 0.0
    if job.limit_min and (job.reason == "TimeLimit" or ran_min >= job.limit_min - NEAR_MIN):
        return f"{TIMEOUT} {job.limit_min:g}"
    return job.state if job.is_over else ""


def told(ending: str) -> str:
    """The words of `ending_of_this_job` as people read them."""
    match ending.split():
        case [state, limit] if state == TIMEOUT:
            return f"Slurm's time limit of {limit} min"
        case [state]:
            return f"Slurm calls the job {state}"
        case _:
            return ""


def _end(number: str, sight: Sight) -> slurm.Job:
    """How a try ended: by its own last words, else as Slurm remembers."""
    with contextlib.suppress(ValueError):
        state, limit = sight.ending
        return slurm.Job(id=number, state=state, limit_min=float(limit))
    return slurm.find(number) or slurm.Job(id=number, state="")


def _out_of_time(limits: list[float], this: slurm.Job | None) -> Verdict | None:
    """The verdict where the limit was hit; None where this try's own is longer, or may be."""
    longest = max(limits, default=0.0)
    if this is None and len(limits) < 2:
        return None
    if this is not None and (this.limit_min is None or this.limit_min > longest):
        return None
    told = " and then ".join(f"{limit:g} min" for limit in limits)
    return Verdict(
        "failed",
        f"Slurm stopped the job at its time limit, {told}: raise protocol.timeout_min, or the "
        "rule's runtime in the profile",
    )
