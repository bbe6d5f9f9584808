"""Snakemake's `--logger feedrate`: progress by rule and by training step, and the time left."""

import logging
import os
from collections.abc import Mapping
from typing import Any

from snakemake_interface_logger_plugins.base import LogHandlerBase
from snakemake_interface_logger_plugins.common import LogEvent

from feedrate.progress import Display, Progress

SHOWN_AS_EVENTS = {str(event) for event in LogEvent} - {str(LogEvent.ERROR)}

SAID_ELSEWHERE = (
    "RuleException:\nCalledProcessError",
    "CalledProcessError",
    "Exiting because a job execution failed",
    "WorkflowError:\nAt least one job did not complete successfully",
    "None",
)
"""What Snakemake adds after a job's own message and ours."""


def job_error(record: Mapping[str, Any]) -> str:
    """`train_cpu failed (logs/x.log)`; the job itself has said why."""
    logs = ", ".join(record.get("log") or [])
    return f"{record.get('rule_name')} failed{f' ({logs})' if logs else ''}"


class LogHandler(LogHandlerBase):
    """Shows a plan as it is worked off; a dry-run and all errors look as Snakemake writes them."""

    def __post_init__(self) -> None:
        self._quiet = bool(self.common_settings.quiet)
        self._plain = bool(self.common_settings.dryrun or self.common_settings.verbose)
        self._progress = Progress()
        self._display = Display(self._progress, enabled=not (self._quiet or self._plain))
        # Training jobs print step lines of their own only where no display shows them.
        if self._quiet or self._display.live:
            os.environ["FEEDRATE_QUIET"] = "1"

    def emit(self, record: logging.LogRecord) -> None:
        """Show one log record."""
        event = str(getattr(record, "event", "") or "")
        if event in SHOWN_AS_EVENTS and not self._plain:
            self._progress.update(event, record.__dict__)
            self._display.show()
        elif self._plain or record.levelno >= logging.WARNING:
            text = self.format(record)
            if self._plain or not text.startswith(SAID_ELSEWHERE):
                self._display.message(text)
        if event == LogEvent.JOB_ERROR and not self._plain:
            self._display.message(job_error(record.__dict__))

    def close(self) -> None:
        """Take the display down."""
        self._display.close()
        super().close()

    @property
    def writes_to_stream(self) -> bool:
        """It replaces Snakemake's own stream handler."""
        return True

    @property
    def writes_to_file(self) -> bool:
        """It writes no file."""
        return False

    @property
    def has_filter(self) -> bool:
        """Snakemake's filter is used."""
        return False

    @property
    def has_formatter(self) -> bool:
        """Snakemake's formatter is used, for what is shown as Snakemake writes it."""
        return False

    @property
    def needs_rulegraph(self) -> bool:
        """It shows counts, not a graph."""
        return False


__all__ = ["LogHandler"]
