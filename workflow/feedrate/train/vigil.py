"""Taking a run's claim: a live holder is waited for, a dead one is followed."""

import time
from collections.abc import Callable
from pathlib import Path

from feedrate.cluster import slurm
from feedrate.train.claim import Claim, Sight, claim_next, newest
from feedrate.train.holder import Holder, lives

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
