"""Progress on a terminal as bars, elsewhere as a line per event. Everything goes to stderr."""

import sys
import threading
import time

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from feedrate.paths import TRAIN_RULE
from feedrate.progress import Job, Progress, duration

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
