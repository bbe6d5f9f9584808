"""Holders of locks for tests: this process, and others that were never there."""

import os

from feedrate.jobs.run_lock import Holder, Identity, process_space, start_ticks

SAME = Identity(spec="s", source="c", data="d", attempt=1)
ELSEWHERE = "another boot, another namespace"


def holder(**values) -> Holder:
    """This process as a holder, with some facts changed."""
    facts = {
        **{"identity": SAME, "token": "me", "host": "here", "space": process_space()},
        **{"pid": os.getpid(), "started": start_ticks(os.getpid()), "job": "", "since": ""},
    }
    return Holder(**{**facts, **values})


def away(**values) -> Holder:
    """A holder on another host."""
    return holder(**{"token": "away", "host": "there", "space": ELSEWHERE, "job": "12", **values})
