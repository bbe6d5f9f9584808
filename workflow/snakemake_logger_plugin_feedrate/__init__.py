"""Snakemake's `--logger feedrate`: progress by job, the time left, errors."""

import logging
import os
import re
import sys

from snakemake_interface_logger_plugins.base import LogHandlerBase
from snakemake_interface_logger_plugins.common import LogEvent

from feedrate.core import variables
from feedrate.flow import configuration, driver
from feedrate.flow.lost import Failures

SAID_ELSEWHERE = (
    "RuleException:\nCalledProcessError",
    "CalledProcessError",
    "Exiting because a job execution failed",
    "WorkflowError:\nAt least one job did not complete successfully",
    "None",
    # Slurm's executor, about a missing account: if one is needed, sbatch says so.
    *("No SLURM account given", "No account was given", "Guessed SLURM account"),
    "Unable to guess SLURM account",
)
"""Messages that say nothing new after a job's own message and ours."""

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
        from feedrate.cli.display import Job, Progress

        quiet = bool(self.common_settings.quiet)
        self._plain = bool(self.common_settings.dryrun or self.common_settings.verbose)
        self._progress = Progress(quiet=quiet or self._plain)
        self._said: set[str] = set()
        self._failures = Failures()
        self._failed: dict[int, Job] = {}
        if quiet:
            os.environ[variables.QUIET] = "1"

    def filter(self, record: logging.LogRecord) -> "bool | logging.LogRecord":
        """Let errors pass, however quiet Snakemake is; the end of a job is not an error."""
        event = str(getattr(record, "event", "") or "")
        is_error = record.levelno >= logging.ERROR and event in ("", LogEvent.ERROR)
        return is_error or super().filter(record)

    def emit(self, record: logging.LogRecord) -> None:
        """Show one log record."""
        event, values = str(getattr(record, "event", "") or ""), record.__dict__
        progress, text = self._progress, record.getMessage()
        if self._plain:
            self._say(self.format(record))
        elif event == LogEvent.RUN_INFO:
            progress.begin(values.get("stats") or {})
        elif event == LogEvent.JOB_INFO:
            progress.start(values)
        elif event == LogEvent.JOB_FINISHED:
            progress.finish(values["job_id"])
        elif event == LogEvent.JOB_ERROR:
            job = progress.running.pop(values.get("jobid", -1), None)
            if line := self._failures.line(values, job.label if job else ""):
                self._say(line)
                if job:
                    self._failed[values["jobid"]] = job
        elif event in ("", LogEvent.ERROR) and record.levelno >= logging.WARNING:
            self._tell(self.format(record))
        elif submitted := SUBMITTED.match(text):
            progress.submit(int(submitted[1]), submitted[2])
        elif (again := AGAIN.match(text)) and (job := self._failed.pop(int(again[1]), None)):
            self._say(f"{job.rule} {job.label}: trying again")

    def close(self) -> None:
        """Show the failures that no job reported."""
        for line in self._failures.rest():
            self._tell(line)
        super().close()

    def _tell(self, text: str) -> None:
        """Show a warning or an error once, without the traceback of a library."""
        text = text.partition("\nTraceback (most recent call last)")[0]
        if text.startswith("LockException"):  # it advises to unlock even if the other run is alive
            text = driver.occupied() or text
        if text not in self._said and not text.startswith(SAID_ELSEWHERE):
            self._said.add(text)
            self._say(text)

    def _say(self, text: str) -> None:
        text = PLACE.sub("", text)
        if BROKEN.match(text):
            text = configuration.fault_of_files(configuration.call().configfiles) or text
        print(text, file=sys.stderr, flush=True)


__all__ = ["LogHandler"]
