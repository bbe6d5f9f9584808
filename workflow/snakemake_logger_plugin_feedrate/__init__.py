"""Snakemake's `--logger feedrate`: progress by rule and by training step, and the time left."""

import logging
import os
import re
from typing import TYPE_CHECKING

from snakemake_interface_logger_plugins.base import LogHandlerBase
from snakemake_interface_logger_plugins.common import LogEvent

from feedrate.core import variables
from feedrate.flow import configuration, driver, forecast
from feedrate.flow.lost import Failures

if TYPE_CHECKING:
    from feedrate.cli.display import Job

SHOWN_AS_EVENTS = {str(event) for event in LogEvent} - {str(LogEvent.ERROR)}

SAID_ELSEWHERE = (
    "RuleException:\nCalledProcessError",
    "CalledProcessError",
    "Exiting because a job execution failed",
    "WorkflowError:\nAt least one job did not complete successfully",
    "None",
)
"""Messages that Snakemake adds after a job's own message and ours; they say nothing new."""

OF_NO_USE = (
    *("No SLURM account given", "No account was given", "Guessed SLURM account"),
    "Unable to guess SLURM account",
)
"""Warnings of Slurm's executor about a missing account. If one is needed, sbatch says so."""

PLACE = re.compile(
    r'\AWorkflowError(?: in file "[^"\n]*", line \d+)?:\n'
    r'|(?:\n  File "[^"\n]*", line \d+, in .*)+\Z'
)
"""What Snakemake adds before and after our sentence: the place in the Snakefile that raised it."""

BROKEN = re.compile(r"^Config file (?:is not valid|must be given)")
"""Snakemake's message for a --configfile that it cannot read; it names neither file nor line."""

SUBMITTED = re.compile(r"Job (\d+) has been submitted with SLURM jobid (\S+)")
AGAIN = re.compile(r"Trying to restart job (\d+)")


class LogHandler(LogHandlerBase):
    """Shows the progress of a workflow; shows a dry-run and all errors as Snakemake writes them."""

    writes_to_stream = True
    """It replaces Snakemake's own stream handler."""
    writes_to_file = needs_rulegraph = False
    has_filter = has_formatter = False
    """Snakemake's are used, the formatter for what is shown as Snakemake writes it."""

    def __post_init__(self) -> None:
        # Snakemake imports every plugin, also in calls that do not use it.
        from feedrate.cli.display import Display, Progress

        self._quiet = bool(self.common_settings.quiet)
        self._jobs = forecast.open_jobs()
        dryrun = self.common_settings.dryrun and self._jobs is None
        self._plain = bool(dryrun or self.common_settings.verbose)
        self._progress = Progress()
        enabled = not (self._quiet or self._plain or self._jobs)
        self._display = Display(self._progress, enabled=enabled)
        self._warned: set[str] = set()
        self._failures = Failures()
        self._failed: dict[int, Job] = {}
        # Training jobs print their steps only if no display shows them.
        if self._quiet or self._display.live:
            os.environ[variables.QUIET] = "1"

    def filter(self, record: logging.LogRecord) -> "bool | logging.LogRecord":
        """Let errors pass, however quiet Snakemake is; the end of a job is not an error."""
        event = str(getattr(record, "event", "") or "")
        is_error = record.levelno >= logging.ERROR and event in ("", LogEvent.ERROR)
        return is_error or super().filter(record)

    def emit(self, record: logging.LogRecord) -> None:
        """Show one log record."""
        event = str(getattr(record, "event", "") or "")
        if self._plain:
            self._say(self.format(record))
        elif event == LogEvent.JOB_INFO and self._jobs:
            forecast.tell_job(record.__dict__, self._jobs)
        elif event == LogEvent.JOB_ERROR:
            self._tell_failure(record)
        elif event in SHOWN_AS_EVENTS:
            self._display.show(self._progress.update(event, record.__dict__))
        elif record.levelno >= logging.WARNING:
            self._tell(self.format(record))
        else:
            self._tell_of_cluster(record.getMessage())

    def close(self) -> None:
        """Take the display down."""
        for line in self._failures.rest():
            self._tell(line)
        if self._jobs:
            self._jobs.close()
        self._display.close()
        super().close()

    def _tell(self, text: str) -> None:
        """Show a warning or an error once, without the traceback of a library."""
        text = text.partition("\nTraceback (most recent call last)")[0]
        if text.startswith("LockException"):  # it advises to unlock even if the other run is alive
            text = driver.occupied() or text
        if text not in self._warned and not text.startswith((*SAID_ELSEWHERE, *OF_NO_USE)):
            self._warned.add(text)
            self._say(text)

    def _say(self, text: str) -> None:
        text = PLACE.sub("", text)
        if BROKEN.match(text):
            text = configuration.fault_of_files(configuration.call().configfiles) or text
        self._display.message(text)

    def _tell_failure(self, record: logging.LogRecord) -> None:
        """Show that a job failed. Snakemake says next whether it is tried again."""
        number = record.__dict__.get("jobid", -1)
        job = self._progress.running.get(number)
        self._progress.update(str(LogEvent.JOB_ERROR), record.__dict__)
        if line := self._failures.line(record.__dict__, job.label if job else ""):
            self._display.message(line)
            if job:
                self._failed[number] = job

    def _tell_of_cluster(self, text: str) -> None:
        """Take from a message what Snakemake reports about jobs as text only."""
        if found := SUBMITTED.match(text):
            self._display.show(self._progress.submitted(int(found[1]), found[2]))
        elif (found := AGAIN.match(text)) and (job := self._failed.pop(int(found[1]), None)):
            self._display.message(f"{job.rule} {job.label}: trying again")


__all__ = ["LogHandler"]
