"""The output: tables on stdout, progress on stderr."""

import sys
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console, RenderableType
from rich.table import Table

from feedrate.config.values import BETWEEN_LEVELS, Level, level_text, parse_levels
from feedrate.core.paths import TRAIN_RULE
from feedrate.report.text import counted
from feedrate.results.files import Row

FILE_WIDTH = 1000
"""Columns of output to a file or a pipe, so that no line is broken."""


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
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}:{minutes:02}:{rest:02}"
    return f"{minutes}:{rest:02}" if minutes else f"{rest} s"


@dataclass
class Job:
    """A job that Snakemake has started or submitted."""

    rule: str
    wildcards: Mapping[str, Any]
    started_s: float
    slurm_id: str = ""

    @property
    def is_training(self) -> bool:
        """Whether its rule trains."""
        return self.rule.startswith(TRAIN_RULE)

    @property
    def label(self) -> str:
        """As `workers=2, decode=host, repeat 1` for a run, otherwise the wildcards' values."""
        if "cell" not in self.wildcards:
            return " ".join(map(str, self.wildcards.values()))
        levels = self.wildcards["cell"].replace(BETWEEN_LEVELS, ", ")
        return f"{levels}, repeat {self.wildcards.get('repeat', '?')}"


class Progress:
    """The progress of the workflow on stderr: a line for each job that ends. The steps between are
    printed by the training jobs themselves."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._total: dict[str, int] = {}
        self._done: Counter[str] = Counter()
        self.running: dict[int, Job] = {}
        self._started_s = time.monotonic()
        self._training_since_s: float | None = None

    def begin(self, counts: Mapping[str, int]) -> None:
        """Take the number of jobs by rule."""
        self._total = {rule: n for rule, n in counts.items() if rule != "total"}
        rules = ", ".join(f"{rule} {n}" for rule, n in self._total.items())
        total = counted(sum(self._total.values()), "job")
        self._print(f"{total}: {rules}" if rules else "nothing to do")

    def start(self, record: Mapping[str, Any]) -> None:
        """Take a job that starts."""
        job = Job(record["rule_name"], record.get("wildcards") or {}, time.monotonic())
        self.running[record["jobid"]] = job
        if job.is_training and self._training_since_s is None:
            self._training_since_s = job.started_s

    def submit(self, number: int, slurm_id: str) -> None:
        """Take the number of a job on Slurm."""
        if job := self.running.get(number):
            job.slurm_id = slurm_id
            if job.is_training:
                self._print(f"{job.rule}  {job.label}: submitted (Slurm job {slurm_id})")

    def finish(self, number: int) -> None:
        """Take the end of a job."""
        if (job := self.running.pop(number, None)) is None:
            return
        self._done[job.rule] += 1
        took = ""
        if job.is_training:
            after = "after " if job.slurm_id else ""  # includes its time in the queue
            took = f"  {after}{duration(time.monotonic() - job.started_s)}{self._left()}"
        count = f"{self._done[job.rule]}/{self._total.get(job.rule, '?')}"
        self._print(f"{job.rule} {count}  {job.label}".rstrip() + took)

    def _print(self, text: str) -> None:
        if not self._quiet:
            clock = duration(time.monotonic() - self._started_s)
            print(f"[{clock:>6}] {text}", file=sys.stderr, flush=True)

    def _left(self) -> str:
        """The time until all training jobs are done, by the rate at which they have finished."""
        total = sum(n for rule, n in self._total.items() if rule.startswith(TRAIN_RULE))
        done = sum(n for rule, n in self._done.items() if rule.startswith(TRAIN_RULE))
        if self._training_since_s is None or not 0 < done < total:
            return ""
        mean_s = (time.monotonic() - self._training_since_s) / done
        return f"; about {duration(mean_s * (total - done))} left"
