"""Taking a run's claim: a live holder is waited for, a dead one is followed."""

import contextlib
import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from feedrate.core import slurm
from feedrate.core.paths import OUTCOME_NAME
from feedrate.jobs.outcome import Verdict
from feedrate.jobs.run_lock import Claim, Holder, Identity, Sight, claim_next, lives, newest

POLL_S = 0.5
STALE_S = 90.0
"""A holder is dead where its claim has not changed for so long, by the watcher's own clock. Network
file systems show a change up to a minute late (nfs(5), acregmax)."""

QUIET_S = 15.0
"""The same where Slurm says that its job is over. Slurm's word alone is not enough: of a node that
it has lost, the processes may still run."""


class Claimed(Exception):
    """A living job makes another result in the same folder."""


class Vigil:
    """Tells, by watching its claim, whether a holder lives."""

    def __init__(self, me: Holder) -> None:
        self._me = me
        self._seen = ""
        self._number = 0
        self._changed = False
        self._since_s = self._ask_s = 0.0

    def judge(self, sight: Sight) -> bool | None:
        """Whether the holder in `sight` lives; None where that is not yet known."""
        if sight.has_ended:
            return False
        now_s = time.monotonic()
        if (sight.number, sight.text) != (self._number, self._seen):
            self._changed = sight.number == self._number
            self._number, self._seen = sight.number, sight.text
            self._since_s, self._ask_s = now_s, now_s + QUIET_S
        if sight.holder and sight.holder.space == self._me.space:
            return lives(sight.holder)
        if now_s - self._since_s >= STALE_S:
            return False
        if now_s >= self._ask_s and sight.holder:
            self._ask_s = now_s + QUIET_S
            if _job_is_over(sight.holder, self._me):
                return False
        return self._changed or None


def take(
    run: Path, me: Holder, check: Callable[[], None], tell: Callable[[str], None]
) -> tuple[Claim, set[str]]:
    """The claim on `run`, and the tokens of those that were seen alive meanwhile.

    `check` is called at every look and may raise to give up. Raises Claimed where the holder makes
    something else.
    """
    vigil, met, told = Vigil(me), set[str](), False
    while True:
        sight = newest(run)
        alive = False if sight is None else vigil.judge(sight)
        if alive is False:
            if claim := claim_next(run, me, sight.number if sight else 0):
                return claim, met
            continue
        if alive and sight and sight.holder:
            if not sight.holder.identity.serves(me.identity):
                raise Claimed(_other(sight.holder))
            met.add(sight.holder.token)
        if not told and sight and sight.holder:
            tell(f"waiting for the result of another job of this run ({sight.holder})")
            told = True
        check()
        time.sleep(POLL_S)


def _job_is_over(holder: Holder, me: Holder) -> bool:
    """Whether Slurm says so. Of this very job, started again by Slurm, an earlier start is over."""
    if holder.job == me.job:
        return holder.job != ""
    job = slurm.find(holder.job)
    return job is not None and job.is_over


def _other(holder: Holder) -> str:
    return (
        f"another job ({holder}) trains this run with other settings, code or data: wait for its "
        "end, or end what an earlier driver left with `python -m feedrate cancel`"
    )


# What became of the earlier tries of a job, where it is Slurm that ended them.
# Most ends deserve another try: a node that was lost, a preemption, a time limit where the next
# one is longer. Memory that did not suffice is a result, and so is the longest time that there
# is.

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
