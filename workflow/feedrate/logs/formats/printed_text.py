"""What a Trainer prints: dicts (numbers in 4.x, numbers as text in 5.x), tables, progress bars."""

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from feedrate.jobs.causes import CauseReader
from feedrate.logs.reading import LOG_ORDER, Found, lines
from feedrate.logs.trainer import evaluation_figures, number

ORDER = 3
FILES = ("*.log", "*.out", "*.txt")
IMPORTS = ("*.log", "*.out", "*.err", "*.std*", "*log*.txt", "*train*.txt", "slurm-*", "*.o[0-9]*")

SPLITS = {"eval": "validation", "test": "test", "predict": "test"}
"""The first part of an evaluation's metrics, and the split that they are about."""
_DICT = re.compile(r"\{['\"][^{}\n]{1,20000}\}")
_PAIR = re.compile(r"['\"]([^'\"\n]{1,100})['\"]:\s*['\"]?([^'\",}\n]{1,60})")
_HEADING = re.compile(r"\*{5} (\w{1,40}) metrics \*{5}")
_ROW = re.compile(r"^\s*(\w[\w ()]{0,80}?)\s*=\s*(\S.{0,60}?)\s*$")
_START = re.compile(r"\*{5} Running training \*{5}")
_RESUMED = re.compile(r"Continuing training from global step (\d+)")
_TOTAL = re.compile(r"Total optimization steps = ([\d,]+)")
_BAR = re.compile(r"^\s*\d+%\|[^|]*\| (\d+)/(\d+) \[((?:\d+:)?\d+:\d\d)<")
_UNITS = {"GF": 2**30, "MB": 1}


def read(path: Path) -> Iterator[Found]:
    """The jobs in a log, one after the other."""
    jobs = [Job()]
    for line in lines(path):
        if "*****" in line and jobs[-1].began and _START.search(line):
            jobs.append(Job())
        jobs[-1].feed(line)
    found = [one for job in jobs if (one := job.found())]
    for count, one in enumerate(found, 1):
        yield one if len(found) == 1 else replace(one, label=f"job {count} of {len(found)}")


class Job:
    """What a log says about one job, line by line."""

    def __init__(self) -> None:
        self.began = False
        """Whether a training has started and made a step, so that another start is another job."""
        self._started = False
        self._causes = CauseReader()
        self._dicts: dict[str, dict[str, float]] = {}
        self._tables: dict[str, dict[str, float]] = {}
        """The finite metrics of each split, printed as a dict or under its heading."""
        self._inside = ""
        self._resumed: int | None = None
        self._total: int | None = None
        self._bars: dict[str, list[re.Match[str]]] = {}
        """The first and the last step of each bar, by its number of steps."""

    def feed(self, line: str) -> None:
        """Take the next line."""
        self._causes.feed(line)
        self._take_metrics(line)
        self.began = self.began or (self._started and ("'loss'" in line or "/s]" in line))
        if "%|" in line:
            if bar := _BAR.match(line):
                self._bars.setdefault(bar[2], [bar, bar])[1] = bar
        elif "*****" in line and _START.search(line):
            self._started = True
        elif found := _RESUMED.search(line):
            self._resumed = int(found[1])
        elif found := _TOTAL.search(line):
            self._total = int(found[1].replace(",", ""))

    def _take_metrics(self, line: str) -> None:
        if "_runtime" in line:
            for printed in _DICT.finditer(line):
                values = {key: number(value.strip()) for key, value in _PAIR.findall(printed[0])}
                known = {key: value for key, value in values.items() if value is not None}
                for key in values:
                    if key.endswith("_runtime"):
                        self._dicts.setdefault(key.removesuffix("_runtime"), {}).update(known)
        if "*****" in line and (heading := _HEADING.search(line)):
            self._inside = heading[1]
        elif self._inside and (row := _ROW.match(line)):
            unit = row[2][-2:]
            value = number(row[2].removesuffix(unit) if unit in _UNITS else row[2])
            if value is not None:
                table = self._tables.setdefault(self._inside, {})
                table[row[1]] = value * _UNITS.get(unit, 1)
        elif self._inside and line.strip():
            self._inside = ""

    def metrics(self, split: str) -> dict[str, float]:
        """The metrics of a split: of several values of a key the last. Dicts take precedence over
        tables, whose numbers are rounded."""
        return self._tables.get(split, {}) | self._dicts.get(split, {})

    def found(self) -> Found | None:
        """The job; None without figures, a resumption or a reason for an end."""
        metrics: dict[str, Any] = self.metrics("train")
        note, cause = "", self._causes.cause()
        if "train_steps_per_second" not in metrics and (by_bar := self._by_bar()):
            metrics |= {"train_steps_per_second": by_bar}
            note = "steps per second by the progress bar, the first step left out"
        if not metrics and self._resumed is None and cause.name == "unknown":
            return None
        evaluation: dict[str, float] = {}
        for split, ours in SPLITS.items():
            evaluation |= evaluation_figures(ours, self.metrics(split))
        return Found(
            metrics=metrics,
            evaluation=evaluation,
            cause=cause,
            resumed_from=self._resumed,
            order=LOG_ORDER,
            note=note,
        )

    def _by_bar(self) -> float | None:
        """Steps per second between the first and the last step of the training's bar.

        Evaluations have bars too: the training's is the one with its number of steps, if the log
        says that, or else the longest.
        """
        bars = [
            (int(last[1]) - int(first[1]), _seconds(last[3]) - _seconds(first[3]))
            for total, (first, last) in self._bars.items()
            if self._total in (None, int(total))
        ]
        steps, seconds = max(bars, key=lambda bar: bar[1], default=(0, 0.0))
        return steps / seconds if steps > 1 and seconds > 1 else None


def _seconds(elapsed: str) -> float:
    """The time that a bar shows, as 01:02 or 1:01:02, in seconds."""
    return number(elapsed if elapsed.count(":") == 2 else f"0:{elapsed}") or 0.0
