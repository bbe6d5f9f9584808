"""Snakemake's `--logger feedrate`: progress by job, the time left, errors."""

import contextlib
import logging
import re
import sys
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from snakemake_interface_logger_plugins.base import LogHandlerBase
from snakemake_interface_logger_plugins.common import LogEvent

from feedrate.config.values import cell_text, duration_text
from feedrate.core import scheduler
from feedrate.core.errors import SENTENCE
from feedrate.core.files import end_of_file, settle_caches
from feedrate.core.paths import TRAIN_RULE
from feedrate.report.text import counted

settle_caches()  # Snakemake imports this before it needs them, and the Snakefile after

SAID_ELSEWHERE = (
    "RuleException:\nCalledProcessError",
    "CalledProcessError",
    "Exiting because a job execution failed",
    "WorkflowError:\nAt least one job did not complete successfully",
    "None",
    *scheduler.SAID_ELSEWHERE,
)
"""Messages that say nothing new after a job's own message and ours."""

PLACE = re.compile(
    r'\AWorkflowError(?: in file "[^"\n]*", line \d+)?:\n'
    r'|(?:\n  File "[^"\n]*", line \d+, in .*)+\Z'
)
"""What Snakemake adds before and after our sentence: the place in the Snakefile that raised it."""

NOTHING = "Nothing to be done"
AGAIN = re.compile(r"Trying to restart job (\d+)")

UNKNOWN = "its process ended without a result; probably it was killed"
ALIKE = 3
"""After so many failures of a rule for the same cause, further ones are only counted."""


@dataclass
class Job:
    """A job that Snakemake has started or submitted."""

    rule: str
    wildcards: Mapping[str, Any]
    started_s: float
    cluster_id: str = ""

    @property
    def is_training(self) -> bool:
        """Whether its rule trains."""
        return self.rule.startswith(TRAIN_RULE)

    @property
    def label(self) -> str:
        """As `workers=2, decode=host, repeat 1` for a run, otherwise the wildcards' values."""
        if "cell" not in self.wildcards:
            return " ".join(map(str, self.wildcards.values()))
        return f"{cell_text(self.wildcards['cell'])}, repeat {self.wildcards.get('repeat', '?')}"


class Progress:
    """The progress of the workflow on stderr: a line for each training job that ends. What is left
    of a training job, and what other jobs made, these jobs print themselves."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._total, self._done = 0, 0
        self.running: dict[int, Job] = {}
        self._started_s = time.monotonic()
        self._training_since_s: float | None = None

    def begin(self, counts: Mapping[str, int]) -> None:
        """Take the number of jobs by rule."""
        others = {rule: n for rule, n in counts.items() if rule not in ("total", "all")}
        self._total = sum(n for rule, n in others.items() if rule.startswith(TRAIN_RULE))
        total = sum(others.values())
        training = f"{counted(self._total, 'training run')} and "
        rest = counted(total - self._total, "other job" if self._total else "job")
        self._print(f"{training if self._total else ''}{rest} to do")

    def nothing(self) -> None:
        """Say that there are no jobs."""
        self._print("nothing to do: all results are there")

    def start(self, record: Mapping[str, Any]) -> None:
        """Take a job that starts."""
        job = Job(record["rule_name"], record.get("wildcards") or {}, time.monotonic())
        self.running[record["jobid"]] = job
        if job.is_training and self._training_since_s is None:
            self._training_since_s = job.started_s

    def submit(self, number: int, cluster_id: str) -> None:
        """Take the number of a job on the cluster."""
        if job := self.running.get(number):
            job.cluster_id = cluster_id
            if job.is_training:
                self._print(
                    f"{job.rule}  {job.label}: submitted ({scheduler.NAME} job {cluster_id})"
                )

    def finish(self, number: int) -> None:
        """Take the end of a job."""
        job = self.running.pop(number, None)
        if job is None or not job.is_training:
            return
        self._done += 1
        now_s = time.monotonic()
        after = "after " if job.cluster_id else ""  # includes its time in the queue
        line = f"{job.rule} {self._done}/{self._total}  {job.label}"
        line += f"  {after}{duration_text(now_s - job.started_s)}"
        left = self._total - self._done
        if left > 0 and self._training_since_s is not None:
            mean_s = (now_s - self._training_since_s) / self._done
            line += f"; about {duration_text(mean_s * left)} left"
        self._print(line)

    def _print(self, text: str) -> None:
        if not self._quiet:
            clock = duration_text(time.monotonic() - self._started_s)
            print(f"[{clock:>6}] {text}", file=sys.stderr, flush=True)


class Failures:
    """Messages about failed jobs: one line each, and equal ones counted."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, str]] = Counter()
        self._first: dict[tuple[str, str], str] = {}

    def line(self, record: Mapping[str, Any], label: str) -> str:
        """`train_h100 workers=0, repeat 1 failed: why (log)`; empty if it is only counted. A job on
        this host has printed the reason itself."""
        rule = str(record.get("rule_name"))
        why = f": {cause(record)}" if record.get("rule_msg") else ""
        key = rule, re.sub(r"\d+", "", why)  # equal except for job numbers
        self._counts[key] += 1
        self._first.setdefault(key, why)
        if self._counts[key] > ALIKE:
            return ""
        logs = ", ".join(log for log in record.get("log") or () if log and Path(log).exists())
        return f"{rule} {label}".rstrip() + f" failed{why}" + (f" ({logs})" if logs else "")

    def rest(self) -> list[str]:
        """One line for each cause whose later failures were only counted."""
        return [
            f"{rule} failed {count} times{self._first[rule, key]}"
            for (rule, key), count in self._counts.items()
            if count > ALIKE
        ]


def cause(record: Mapping[str, Any]) -> str:
    """Why the job of a `job_error` record failed, without a full stop: from the message of
    Snakemake's executor, and the last sentence that a program of ours wrote to the job's logs."""
    message = str(record.get("rule_msg") or "")
    if why := scheduler.why_not_sent(message):
        return why
    ends = []
    for log in record.get("log") or ():
        with contextlib.suppress(OSError):
            ends.append(end_of_file(Path(log)))
    sentences = [SENTENCE.findall(end)[-1] for end in ends if SENTENCE.search(end)]
    own_words = sentences[0].strip() if sentences else ""
    how = scheduler.how_ended(message, ends)
    if how and own_words:
        return f"{how}{'; ' if ': ' in how else ': '}{own_words}"
    return how or own_words or UNKNOWN


class LogHandler(LogHandlerBase):
    """Shows the progress of a workflow; shows a dry-run and all errors as Snakemake writes them."""

    writes_to_stream = True
    """It replaces Snakemake's own stream handler."""
    writes_to_file = needs_rulegraph = False
    has_filter = has_formatter = False
    """Snakemake's are used, the formatter for what is shown as Snakemake writes it."""

    def __post_init__(self) -> None:
        quiet = bool(self.common_settings.quiet)
        self._plain = bool(self.common_settings.dryrun or self.common_settings.verbose)
        self._progress = Progress(quiet=quiet or self._plain)
        self._said: set[str] = set()
        self._failures = Failures()
        self._failed: dict[int, Job] = {}

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
        elif text.startswith(NOTHING):
            progress.nothing()
        elif sent := scheduler.submitted(text):
            progress.submit(*sent)
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
        if text not in self._said and not text.startswith(SAID_ELSEWHERE):
            self._said.add(text)
            self._say(text)

    def _say(self, text: str) -> None:
        print(PLACE.sub("", text), file=sys.stderr, flush=True)


__all__ = ["LogHandler"]
