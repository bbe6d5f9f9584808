"""Progress of a workflow, by rule and by training step, with the time left."""

import json
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

TRAIN = "train_"
BAR_WIDTH = 24


@dataclass
class Job:
    """A job that runs."""

    rule: str
    wildcards: Mapping[str, Any]
    output: list[str]
    started_s: float

    @property
    def label(self) -> str:
        """`workers=2,decode=host rep 1` for a training job, else the wildcards' values."""
        values = dict(self.wildcards)
        if "cell" in values:
            return f"{values['cell']} rep {values.get('repeat', '?')}"
        return " ".join(map(str, values.values()))


@dataclass
class Progress:
    """What is known of the workflow, from Snakemake's log events."""

    total: dict[str, int] = field(default_factory=dict)
    done: dict[str, int] = field(default_factory=dict)
    running: dict[int, Job] = field(default_factory=dict)
    train_times_s: list[float] = field(default_factory=list)
    started_s: float = field(default_factory=time.monotonic)
    latest: str = ""

    def update(self, event: str, record: Mapping[str, Any]) -> None:
        """Take in one event; `latest` becomes the line to print for it, or stays empty."""
        self.latest = ""
        if event == "run_info":
            self.total = {k: v for k, v in (record.get("stats") or {}).items() if k != "total"}
            self.latest = self._opening()
        elif event == "job_info":
            # Snakemake tells of a job when it starts it.
            self.running[record["jobid"]] = Job(
                rule=record["rule_name"],
                wildcards=record.get("wildcards") or {},
                output=list(record.get("output") or []),
                started_s=time.monotonic(),
            )
        elif event == "job_finished":
            self._finish(record["job_id"])
        elif event == "job_error":
            self.running.pop(record.get("jobid", -1), None)

    def left_s(self) -> float | None:
        """Seconds left by the mean of the training jobs so far; None before the first has ended."""
        total = sum(n for rule, n in self.total.items() if rule.startswith(TRAIN))
        done = sum(n for rule, n in self.done.items() if rule.startswith(TRAIN))
        if not self.train_times_s or done >= total:
            return None
        mean_s = sum(self.train_times_s) / len(self.train_times_s)
        running_s = sum(
            min(time.monotonic() - job.started_s, mean_s)
            for job in self.running.values()
            if job.rule.startswith(TRAIN)
        )
        return max(mean_s * (total - done) - running_s, 0.0)

    def _opening(self) -> str:
        counts = ", ".join(f"{rule} {n}" for rule, n in self.total.items())
        return f"{sum(self.total.values())} jobs: {counts}" if self.total else "nothing to do"

    def _finish(self, job_id: int) -> None:
        job = self.running.pop(job_id, None)
        if job is None:
            return
        self.done[job.rule] = self.done.get(job.rule, 0) + 1
        took_s = time.monotonic() - job.started_s
        of = f"{self.done[job.rule]}/{self.total.get(job.rule, '?')}"
        if job.rule.startswith(TRAIN):
            self.train_times_s.append(took_s)
            left_s = self.left_s()
            left = f"; about {duration(left_s)} left" if left_s else ""
            self.latest = f"{job.rule} {of}  {job.label}  {took_s:.0f} s{left}"
        elif job.rule != "parse_log":
            self.latest = f"{job.rule} {of}  {job.label}".rstrip()


class Display:
    """Bars on a terminal; a line per event elsewhere. Everything goes to stderr."""

    def __init__(self, progress: Progress, *, enabled: bool) -> None:
        self._progress = progress
        self._enabled = enabled
        self._console = Console(stderr=True, highlight=False)
        self.live = enabled and self._console.is_terminal
        self._view: Live | None = None

    def show(self) -> None:
        """Bring the display up to date."""
        if not self._enabled:
            return
        if not self.live:
            if self._progress.latest:
                clock = duration(time.monotonic() - self._progress.started_s)
                print(f"[{clock:>6}] {self._progress.latest}", file=sys.stderr, flush=True)
        elif self._view is None and self._progress.total:
            self._view = Live(
                get_renderable=self._render,
                console=self._console,
                refresh_per_second=2,
                transient=True,
                redirect_stdout=False,
                redirect_stderr=False,
            )
            self._view.start()

    def message(self, text: str) -> None:
        """Print a message of Snakemake's above the display."""
        self._console.print(Text.from_ansi(text), soft_wrap=True)

    def close(self) -> None:
        """Remove the bars."""
        if self._view is not None:
            self._view.stop()
            self._view = None

    def _render(self) -> Group:
        progress = self._progress
        table = Table.grid(padding=(0, 2))
        for rule, total in progress.total.items():
            done = progress.done.get(rule, 0)
            active = any(job.rule == rule for job in progress.running.values())
            if rule.startswith(TRAIN) or active or done < total:
                style = "bold" if active else ("dim" if done >= total else "")
                table.add_row(Text(rule, style), _bar(done, total), Text(f"{done}/{total}", style))
        lines = [
            Text(f"{job.label}: {step}", "cyan")
            for job in list(progress.running.values())
            if job.rule.startswith(TRAIN) and (step := _step(job))
        ]
        left_s = progress.left_s()
        clock = f"{duration(time.monotonic() - progress.started_s)} so far"
        left = f", about {duration(left_s)} left" if left_s else ""
        return Group(table, *lines, Text(clock + left, "dim"))


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


def _bar(done: int, total: int) -> Text:
    filled = round(BAR_WIDTH * done / total) if total else BAR_WIDTH
    return Text("━" * filled, "green") + Text("━" * (BAR_WIDTH - filled), "bright_black")


def _step(job: Job) -> str:
    """The newest step of a training job, read from the events of its attempt."""
    if not job.output:
        return ""
    events = Path(job.output[0]).parent / "attempt" / "events.jsonl"
    try:
        with events.open("rb") as stream:
            stream.seek(max(events.stat().st_size - 4096, 0))
            lines = stream.read().decode(errors="replace").splitlines()
    except OSError:
        return "starting"
    for line in reversed(lines):
        try:
            event = json.loads(line)
        except ValueError:
            continue
        if event.get("event") == "step":
            rate = event["samples"] / event["step_s"] if event.get("step_s") else 0.0
            return f"step {event['step']}, {rate:.1f} samples/s a rank"
        return str(event.get("event", ""))
    return "starting"
