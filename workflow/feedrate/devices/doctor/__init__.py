"""What this machine has, and what the runs of a plan would lack on it, before anything is fetched.

One file per device kind has the checks of that kind. No measured program imports this package: an
edit here repeats no run.
"""

from collections.abc import Iterable
from typing import Literal

import msgspec

from feedrate.config.project import Project
from feedrate.config.spec import RunSpec

Outlook = Literal["fine", "will fail", "will be slow", "unknown"]


class Finding(msgspec.Struct, frozen=True):
    """One thing that was looked at."""

    outlook: Outlook
    subject: str
    """What it is about: `Python`, `h100: torchao`."""
    text: str
    """What was found, in one sentence without a full stop."""
    remedy: str = ""
    """What to do about it; empty if it is fine."""
    studies: list[str] = []
    """The studies that it concerns; empty: all."""


def examine(project: Project, specs: Iterable[RunSpec], *, here: bool = True) -> list[Finding]:
    """What is fine, will fail, will be slow or is unknown for these runs of the project.

    `here`: they run on this host, whose devices and software are looked at. No network is used.
    """
    del project, specs, here
    return []
