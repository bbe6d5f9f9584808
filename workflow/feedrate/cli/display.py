"""The output: tables on stdout; progress on stderr, as bars on a terminal, elsewhere as lines."""

import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from feedrate.config.values import BETWEEN_LEVELS, Level, level_text, parse_levels
from feedrate.core.paths import TRAIN_RULE
from feedrate.jobs.event_tail import EventTail
from feedrate.jobs.events import Step
from feedrate.report.text import counted
from feedrate.results.files import Row

FILE_WIDTH = 1000
"""Columns of output to a file or a pipe, so that no line is broken."""

PLAN = "plan"
"""The rule whose output is all that it has to report."""
SILENT = (PLAN, "write_card")
"""Rules whose finished jobs print no line. A card is written for each kept model."""
BAR_WIDTH = 24
SHOWN = 8
"""At most this many running training jobs have their own line below the bars."""
POLL_S = 10.0
"""Seconds between checks whether submitted jobs have started, where no bars show them."""
_TAIL_BYTES = 4096


def output() -> Console:
    """Stdout, as wide as the terminal."""
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=FILE_WIDTH)


def table(
    title: str,
    columns: Sequence[str],
    rows: Iterable[Iterable[RenderableType]],
    *,
    left: Collection[str] = (),
    wrapped: Collection[str] = (),
) -> Table:
    """A table without lines. The columns named in `left` and `wrapped` are justified left, all
    others right; only those in `wrapped` may take several lines."""
    made = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False)
    for name in columns:
        if name in wrapped:
            made.add_column(name, overflow="fold")
        else:
            made.add_column(name, justify="left" if name in left else "right", no_wrap=True)
    for row in rows:
        made.add_row(*row)
    return made


def cells_table(
    title: str,
    rows: Sequence[Row],
    numbers: Sequence[str],
    word: str,
    values: Callable[[Row], Iterable[RenderableType]],
) -> Table:
    """A table with a row per cell: its device, the factors that vary, and its `values` for each of
    `numbers`, for the column `word`, and a remark."""
    cells = [parse_levels(row["cell"], BETWEEN_LEVELS) for row in rows]
    factors = varying(cells)
    columns = ("device", *factors, *numbers, word, "")
    found = (
        (row["device"], *(level_text(cell.get(name, "")) for name in factors), *values(row))
        for row, cell in zip(rows, cells, strict=True)
    )
    return table(title, columns, found, left=("device", word), wrapped=("",))


def varying(cells: Sequence[Mapping[str, Level]]) -> list[str]:
    """The factors whose levels differ between the cells; all factors if there is only one cell."""
    names = dict.fromkeys(name for cell in cells for name in cell)
    return [n for n in names if len(cells) == 1 or len({cell.get(n) for cell in cells}) > 1]


def duration(seconds: float) -> str:
    """`48 s`, `3:05` (minutes) or `2:03:05` (hours)."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


@dataclass
class Job:
    """A job that Snakemake has started or submitted."""

    rule: str
    wildcards: Mapping[str, Any]
    output: list[str]
    started_s: float
    slurm_id: str = ""
    """Its Slurm job ID, once it is submitted."""

    @property
    def is_training(self) -> bool:
        """Whether its rule trains."""
        return self.rule.startswith(TRAIN_RULE)

    @property
    def label(self) -> str:
        """`workers=2, decode=host, repeat 1` for a run, otherwise the wildcards' values."""
        if "cell" not in self.wildcards:
            return " ".join(map(str, self.wildcards.values()))
        levels = self.wildcards["cell"].replace(BETWEEN_LEVELS, ", ")
        return f"{levels}, repeat {self.wildcards.get('repeat', '?')}"

    def step(self) -> str:
        """The last step in the events of the newest attempt; empty before the first event."""
        found = []
        for file in self.output[:1]:
            for path in Path(file).parent.glob("attempt-*/events.jsonl"):
                with suppress(OSError):
                    found.append((path.stat().st_mtime, path))
        if not found:
            return ""
        events = EventTail(max(found)[1], last_bytes=_TAIL_BYTES).read()
        if not events:
            return "starting"
        if not isinstance(step := events[-1], Step):
            return step.event_name
        rate = (step.samples or 0) / step.step_s if step.step_s else 0.0
        return f"step {step.step}, {rate:.1f} samples/s per rank"


@dataclass
class Progress:
    """The state of the workflow, from Snakemake's log events."""

    total: dict[str, int] = field(default_factory=dict)
    done: Counter[str] = field(default_factory=Counter)
    running: dict[int, Job] = field(default_factory=dict)
    train_times_s: list[float] = field(default_factory=list)
    started_s: float = field(default_factory=time.monotonic)
    on_cluster: bool = False
    """Whether jobs wait in a cluster's queue."""

    def update(self, event: str, record: Mapping[str, Any]) -> str:
        """Process one event; return the line to print for it, empty for most events."""
        if event == "run_info":
            self.total = {k: v for k, v in (record.get("stats") or {}).items() if k != "total"}
            if self.total.keys() != {PLAN}:
                counts = ", ".join(f"{rule} {n}" for rule, n in self.total.items())
                total = counted(sum(self.total.values()), "job")
                return f"{total}: {counts}" if counts else "nothing to do"
        elif event == "job_info":  # a job starts
            self.running[record["jobid"]] = Job(
                rule=record["rule_name"],
                wildcards=record.get("wildcards") or {},
                output=list(record.get("output") or []),
                started_s=time.monotonic(),
            )
        elif event == "resources_info":
            self.on_cluster = self.on_cluster or "nodes" in record
        elif event == "job_finished":
            return self._finish(record["job_id"])
        elif event == "job_error":
            self.running.pop(record.get("jobid", -1), None)
        return ""

    def submitted(self, job_id: int, slurm_id: str) -> str:
        """Note that a job was submitted to Slurm; return the line to print."""
        job = self.running.get(job_id)
        if job is None:
            return ""
        job.slurm_id = slurm_id
        line = f"{job.rule}  {job.label}: submitted (Slurm job {slurm_id})"
        return line if job.is_training else ""

    def left_s(self) -> float | None:
        """Seconds until all training jobs are done; None before the first has finished: by the mean
        time of a job, but on a cluster, where jobs run together, by the rate at which they finish.
        """
        total = sum(n for rule, n in self.total.items() if rule.startswith(TRAIN_RULE))
        done = len(self.train_times_s)
        if not 0 < done < total:
            return None
        now_s = time.monotonic()
        if self.on_cluster:
            return (now_s - self.started_s) / done * (total - done)
        mean_s = fmean(self.train_times_s)
        jobs = [job for job in self.running.values() if job.is_training]
        running_s = sum(min(now_s - job.started_s, mean_s) for job in jobs)
        return max(mean_s * (total - done) - running_s, 0.0)

    def _finish(self, job_id: int) -> str:
        job = self.running.pop(job_id, None)
        if job is None:
            return ""
        self.done[job.rule] += 1
        count = f"{job.rule} {self.done[job.rule]}/{self.total.get(job.rule, '?')}"
        if job.is_training:
            took_s = time.monotonic() - job.started_s
            self.train_times_s.append(took_s)
            left_s = self.left_s()
            left = f"; about {duration(left_s)} left" if left_s else ""
            after = "after " if self.on_cluster else ""  # includes its time in the queue
            return f"{count}  {job.label}  {after}{duration(took_s)}{left}"
        return "" if job.rule in SILENT else f"{count}  {job.label}".rstrip()


class Display:
    """Shows a `Progress`."""

    def __init__(self, progress: Progress, *, enabled: bool) -> None:
        self._progress = progress
        self._enabled = enabled
        self._console = Console(stderr=True, highlight=False)
        self.live = enabled and self._console.is_terminal
        self._bars: Live | None = None
        self._poll: threading.Thread | None = None
        self._closed = threading.Event()

    def show(self, line: str) -> None:
        """Show the state after an event: as bars, or with this `line`."""
        if not self._enabled:
            return
        if not self.live:
            if line:
                self._print_line(line)
            if self._poll is None and self._progress.on_cluster:
                self._poll = threading.Thread(target=self._print_started_jobs, daemon=True)
                self._poll.start()
        elif self._bars is None and self._progress.total:
            self._bars = Live(
                get_renderable=self._render,
                console=self._console,
                # Every refresh reads a file for each job, on a cluster over the network.
                refresh_per_second=0.5 if self._progress.on_cluster else 2,
                transient=True,
                redirect_stdout=False,
                redirect_stderr=False,
            )
            self._bars.start()

    def message(self, text: str) -> None:
        """Print a message above the bars."""
        self._console.print(Text.from_ansi(text), soft_wrap=True)

    def close(self) -> None:
        """Remove the bars."""
        self._closed.set()
        if self._bars is not None:
            self._bars.stop()
            self._bars = None
        if self._poll is not None:
            self._poll.join()

    def _print_line(self, text: str) -> None:
        clock = duration(time.monotonic() - self._progress.started_s)
        print(f"[{clock:>6}] {text}", file=sys.stderr, flush=True)

    def _print_started_jobs(self) -> None:
        """Print a line for each submitted training job that has started."""
        printed: set[str] = set()
        while not self._closed.wait(POLL_S):
            for job in list(self._progress.running.values()):
                new = job.slurm_id and job.slurm_id not in printed
                if new and job.is_training and job.step():
                    printed.add(job.slurm_id)
                    self._print_line(f"{job.rule}  {job.label}: running (Slurm job {job.slurm_id})")

    def _render(self) -> Group:
        """A bar for each rule, a line for each running training job, and the time."""
        progress = self._progress
        jobs = list(progress.running.values())
        steps = {id(job): job.step() for job in jobs if job.is_training}
        bars = Table.grid(padding=(0, 2))
        for rule, total in progress.total.items():
            done = progress.done[rule]
            active = [job for job in jobs if job.rule == rule]
            if rule.startswith(TRAIN_RULE) or active or done < total:
                style = "bold" if active else ("dim" if done >= total else "")
                filled = round(BAR_WIDTH * done / total) if total else BAR_WIDTH
                bar = Text("━" * filled, "green")
                bar.append("━" * (BAR_WIDTH - filled), "bright_black")
                count = Text(f"{done}/{total}", style)
                bars.add_row(Text(rule, style), bar, count, _queue(active, steps))
        clock = f"{duration(time.monotonic() - progress.started_s)} so far"
        if left_s := progress.left_s():
            clock += f", about {duration(left_s)} left"
        return Group(bars, *_lines(jobs, steps), Text(clock, "dim"))


def _queue(jobs: list[Job], steps: dict[int, str]) -> Text:
    """How many of a rule's training jobs run on the cluster, and how many are in its queue."""
    submitted = [job for job in jobs if job.slurm_id and job.is_training]
    if not submitted:
        return Text("")
    running = sum(bool(steps[id(job)]) for job in submitted)
    return Text(f"{running} running, {len(submitted) - running} submitted", "dim")


def _lines(jobs: list[Job], steps: dict[int, str]) -> list[Text]:
    """A line for each training job that runs; none for jobs in a queue."""
    shown = [
        Text(f"{job.rule.removeprefix(TRAIN_RULE)} {job.label}: {step or 'starting'}", "cyan")
        for job in jobs
        if job.is_training and ((step := steps[id(job)]) or not job.slurm_id)
    ]
    more = [Text(f"… and {len(shown) - SHOWN} more", "cyan")] if len(shown) > SHOWN else []
    return shown[:SHOWN] + more
