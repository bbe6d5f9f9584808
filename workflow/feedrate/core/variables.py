"""The environment variables that feedrate's processes pass on: what a job cannot know from its
options. docs/architecture.md explains each, and names the code that sets it."""

import os

import msgspec

DRIVER = "FEEDRATE_DRIVER"
SUPERVISOR_PID = "FEEDRATE_SUPERVISOR_PID"
DETECTED = "FEEDRATE_DETECTED"
PROFILE_FILES = "FEEDRATE_PROFILE_FILES"
PYTHON = "FEEDRATE_PYTHON"
PATH = "FEEDRATE_PATH"
SET = "FEEDRATE_SET"  # names of variables that have a copy under this prefix and `_`
UNSET = "FEEDRATE_UNSET"
"""Before the name, and `_`, of a variable that our processes do not pass on."""


class DriverCall(msgspec.Struct, frozen=True, kw_only=True):
    """The Snakemake that starts a job, and how it was called: the value of `DRIVER`."""

    pid: int
    host: str
    since: str  # its start in its clock's seconds since 1970: it tells calls apart
    is_local: bool = True  # its jobs run on its host, and end with it
    retries: int = 0  # how often Snakemake tries a failed job again
    quiet: bool = False
    choices: tuple[str, ...] = ()  # the words that select the profile and override config.yaml

    def __str__(self) -> str:
        """As `123@node7`."""
        return f"{self.pid}@{self.host}"


def driver_call() -> DriverCall | None:
    """The driver of this job; None for a job that somebody starts by hand."""
    text = os.environ.get(DRIVER, "")
    return msgspec.json.decode(text, type=DriverCall) if text else None
