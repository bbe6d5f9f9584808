"""Progress of a workflow, by rule and by training job, with the time left."""

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from feedrate.config.base import BETWEEN_LEVELS
from feedrate.paths import TRAIN_RULE

SPEAKS_FOR_ITSELF = {"plan"}
"""A rule that prints what it is there for."""
NOT_TOLD = SPEAKS_FOR_ITSELF | {"parse_log", "write_card"}
"""Rules whose jobs end without a line: one for each training job, and it says nothing new."""

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


def _last_step(events: Path) -> str:
    """The newest step in a file of events."""
    try:
        with events.open("rb") as stream:
            stream.seek(max(events.stat().st_size - _TAIL_BYTES, 0))
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
