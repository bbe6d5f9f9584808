"""Progress on a terminal as bars, elsewhere as a line per event. Everything goes to stderr."""

import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from feedrate.config.values import BETWEEN_LEVELS
from feedrate.core.paths import TRAIN_RULE
from feedrate.jobs.events import EventTail, Step

# Progress of a workflow, by rule and by training job, with the time left.

SPEAKS_FOR_ITSELF = {"plan"}
"""A rule that prints what it is there for."""
NOT_TOLD = SPEAKS_FOR_ITSELF | {"write_card"}
"""Rules whose jobs end without a line: one for each kept model, and it says nothing new."""

_TAIL_BYTES = 4096


@dataclass
class Job:
    """A job that runs."""

    rule: str
    wildcards: Mapping[str, Any]
    output: list[str]
    started_s: float
    sent_as: str = ""
    """Its number in a cluster's queue, once it is there."""

    @property
    def is_training(self) -> bool:
        """Whether it trains."""
        return self.rule.startswith(TRAIN_RULE)

    @property
    def label(self) -> str:
        """`workers=2, decode=host, repeat 1` for a training job, else the wildcards' values."""
        values = dict(self.wildcards)
        if "cell" in values:
            levels = values["cell"].replace(BETWEEN_LEVELS, ", ")
            return f"{levels}, repeat {values.get('repeat', '?')}"
        return " ".join(map(str, values.values()))

    def step(self) -> str:
        """How far a training job is, by the events of its newest attempt; "" before its first."""
        if not self.output:
            return ""
        for events in _newest_events(Path(self.output[0]).parent):
            return _last_step(events)
        return ""


@dataclass
class Progress:
    """What is known of the workflow, from Snakemake's log events."""

    total: dict[str, int] = field(default_factory=dict)
    done: dict[str, int] = field(default_factory=dict)
    running: dict[int, Job] = field(default_factory=dict)
    train_times_s: list[float] = field(default_factory=list)
    started_s: float = field(default_factory=time.monotonic)
    latest: str = ""
    sends: bool = False
    """Whether jobs go to a cluster, and so wait in its queue."""

    def update(self, event: str, record: Mapping[str, Any]) -> None:
        """Take in one event; `latest` becomes the line to print for it, or stays empty."""
        self.latest = ""
        if event == "run_info":
            self.total = {k: v for k, v in (record.get("stats") or {}).items() if k != "total"}
            self.latest = "" if self.total.keys() == SPEAKS_FOR_ITSELF else self._opening()
        elif event == "job_info":
            # Snakemake tells of a job when it starts it.
            self.running[record["jobid"]] = Job(
                rule=record["rule_name"],
                wildcards=record.get("wildcards") or {},
                output=list(record.get("output") or []),
                started_s=time.monotonic(),
            )
        elif event == "resources_info":
            self.sends = self.sends or "nodes" in record
        elif event == "job_finished":
            self._finish(record["job_id"])
        elif event == "job_error":
            self.running.pop(record.get("jobid", -1), None)

    def sent(self, job_id: int, number: str) -> None:
        """Take in that a job is in a cluster's queue; for a training job `latest` says so."""
        self.latest = ""
        job = self.running.get(job_id)
        if job is not None:
            job.sent_as = number
            if job.is_training:
                self.latest = f"{job.rule}  {job.label}: submitted (Slurm job {number})"

    def left_s(self) -> float | None:
        """Seconds left by the training jobs so far; None before the first has ended.

        One after another on one machine: by their mean. On a cluster: by how many ended in a time.
        """
        total = sum(n for rule, n in self.total.items() if rule.startswith(TRAIN_RULE))
        done = sum(n for rule, n in self.done.items() if rule.startswith(TRAIN_RULE))
        if not self.train_times_s or done >= total:
            return None
        if self.sends:
            return (time.monotonic() - self.started_s) / done * (total - done)
        mean_s = sum(self.train_times_s) / len(self.train_times_s)
        running_s = sum(
            min(time.monotonic() - job.started_s, mean_s)
            for job in self.running.values()
            if job.is_training
        )
        return max(mean_s * (total - done) - running_s, 0.0)

    def _opening(self) -> str:
        counts = ", ".join(f"{rule} {n}" for rule, n in self.total.items())
        total = sum(self.total.values())
        return f"{total} job{'' if total == 1 else 's'}: {counts}" if total else "nothing to do"

    def _finish(self, job_id: int) -> None:
        job = self.running.pop(job_id, None)
        if job is None:
            return
        self.done[job.rule] = self.done.get(job.rule, 0) + 1
        took_s = time.monotonic() - job.started_s
        of = f"{self.done[job.rule]}/{self.total.get(job.rule, '?')}"
        if job.is_training:
            self.train_times_s.append(took_s)
            left_s = self.left_s()
            left = f"; about {duration(left_s)} left" if left_s else ""
            after = "after " if self.sends else ""
            self.latest = f"{job.rule} {of}  {job.label}  {after}{duration(took_s)}{left}"
        elif job.rule not in NOT_TOLD:
            self.latest = f"{job.rule} {of}  {job.label}".rstrip()


def duration(seconds: float | None) -> str:
    """`48 s`, `3:05` (minutes) or `2:03:05` (hours)."""
    if seconds is None:
        return "?"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def _newest_events(run: Path) -> list[Path]:
    """The events of the attempts in a run's folder, the newest first."""
    found = []
    for path in run.glob("attempt-*/events.jsonl"):
        try:
            found.append((path.stat().st_mtime, path))
        except OSError:
            continue
    return [path for _, path in sorted(found, reverse=True)]


def _last_step(path: Path) -> str:
    """The newest step in a file of events."""
    events = EventTail(path, last_bytes=_TAIL_BYTES).read()
    if not events:
        return "starting"
    if not isinstance(step := events[-1], Step):
        return step.event_name
    rate = (step.samples or 0) / step.step_s if step.step_s else 0.0
    return f"step {step.step}, {rate:.1f} samples/s a rank"


BAR_WIDTH = 24
LOOK_S = 10.0
"""Seconds between looks at jobs in a queue, for the line that tells that one has begun."""
SHOWN = 8
"""Training jobs at once that have a line of their own below the bars."""


class Display:
    """Shows a `Progress`."""

    def __init__(self, progress: Progress, *, enabled: bool) -> None:
        self._progress = progress
        self._enabled = enabled
        self._console = Console(stderr=True, highlight=False)
        self.live = enabled and self._console.is_terminal
        self._view: Live | None = None
        self._watch: threading.Thread | None = None
        self._closed = threading.Event()

    def show(self) -> None:
        """Bring the display up to date."""
        if not self._enabled:
            return
        if not self.live:
            self._line(self._progress.latest)
            self._start_watch()
        elif self._view is None and self._progress.total:
            self._view = Live(
                get_renderable=self._render,
                console=self._console,
                # Files are looked at for every job; a cluster's are on a network, and many.
                refresh_per_second=0.5 if self._progress.sends else 2,
                transient=True,
                redirect_stdout=False,
                redirect_stderr=False,
            )
            self._view.start()

    def message(self, text: str) -> None:
        """Print a message above the display."""
        self._console.print(Text.from_ansi(text), soft_wrap=True)

    def close(self) -> None:
        """Remove the bars."""
        self._closed.set()
        if self._view is not None:
            self._view.stop()
            self._view = None
        if self._watch is not None:
            self._watch.join()

    def _line(self, text: str) -> None:
        if text:
            clock = duration(time.monotonic() - self._progress.started_s)
            print(f"[{clock:>6}] {text}", file=sys.stderr, flush=True)

    def _start_watch(self) -> None:
        """Where jobs wait in a queue, and no bars show it, tell when each begins."""
        if self._watch is None and self._progress.sends:
            self._watch = threading.Thread(target=self._tell_begun, daemon=True)
            self._watch.start()

    def _tell_begun(self) -> None:
        told: set[str] = set()
        while not self._closed.wait(LOOK_S):
            for job in list(self._progress.running.values()):
                if job.sent_as and job.sent_as not in told and job.is_training and job.step():
                    told.add(job.sent_as)
                    self._line(f"{job.rule}  {job.label}: running (Slurm job {job.sent_as})")

    def _render(self) -> Group:
        progress = self._progress
        jobs = list(progress.running.values())
        steps = {id(job): job.step() for job in jobs if job.is_training}
        table = Table.grid(padding=(0, 2))
        for rule, total in progress.total.items():
            done = progress.done.get(rule, 0)
            active = [job for job in jobs if job.rule == rule]
            if rule.startswith(TRAIN_RULE) or active or done < total:
                style = "bold" if active else ("dim" if done >= total else "")
                count = Text(f"{done}/{total}", style)
                table.add_row(Text(rule, style), _bar(done, total), count, _queue(active, steps))
        left_s = progress.left_s()
        clock = f"{duration(time.monotonic() - progress.started_s)} so far"
        left = f", about {duration(left_s)} left" if left_s else ""
        return Group(table, *_lines(jobs, steps), Text(clock + left, "dim"))


def _queue(jobs: list[Job], steps: dict[int, str]) -> Text:
    """How many of a rule's jobs on a cluster run, and how many wait there."""
    sent = [job for job in jobs if job.sent_as and job.is_training]
    running = sum(bool(steps[id(job)]) for job in sent)
    return Text(f"{running} running, {len(sent) - running} submitted" if sent else "", "dim")


def _lines(jobs: list[Job], steps: dict[int, str]) -> list[Text]:
    """A line for each training job that runs; those in a queue have none."""
    shown = [
        Text(f"{job.rule.removeprefix(TRAIN_RULE)} {job.label}: {said or 'starting'}", "cyan")
        for job in jobs
        if job.is_training and ((said := steps[id(job)]) or not job.sent_as)
    ]
    more = [Text(f"… and {len(shown) - SHOWN} more", "cyan")] if len(shown) > SHOWN else []
    return shown[:SHOWN] + more


def _bar(done: int, total: int) -> Text:
    filled = round(BAR_WIDTH * done / total) if total else BAR_WIDTH
    return Text("━" * filled, "green") + Text("━" * (BAR_WIDTH - filled), "bright_black")
