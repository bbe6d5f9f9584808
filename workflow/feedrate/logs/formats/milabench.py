"""Event files of milabench: one JSON object a line. https://github.com/mila-iqia/milabench"""

import json
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

from feedrate.jobs.causes import Cause, CauseReader
from feedrate.logs.found import Found, lines
from feedrate.logs.trainer import number

IMPORTS = ("*.data",)

UNIT = "items/s"


class _Bench:
    """What one file says about its benchmark."""

    def __init__(self) -> None:
        self.rates: list[float] = []
        self.units: set[str] = set()
        self.loss: Any = None
        self.peak_mib = 0.0
        self.config: dict[str, Any] = {}
        self.code: int | None = None
        self.broken = 0
        self.error = ""
        self.causes = CauseReader()

    def take(self, event: str, data: Any) -> None:
        """Take the next event."""
        if event == "line":
            self.causes.feed(str(data).rstrip())
        elif not isinstance(data, dict):
            return
        elif event == "config":
            self.config = data
        elif event == "data":
            rate = number(data.get("rate"))
            if rate is not None and data.get("task", "train") == "train":
                self.units.add(str(data.get("units", UNIT)))
                self.rates.append(rate)
            self.loss = data.get("loss", self.loss)
            self._take_memory(data.get("gpudata"))
        elif event == "error":
            self.error = f"{data.get('type')}: {data.get('message')}"
            self.causes.feed(self.error)
        elif event == "end":
            self.code = data.get("return_code")

    def _take_memory(self, cards: Any) -> None:
        for card in cards.values() if isinstance(cards, dict) else ():
            used = card.get("memory") if isinstance(card, dict) else None
            if isinstance(used, list) and used and (mib := number(used[0])):
                self.peak_mib = max(self.peak_mib, mib)

    def cause(self) -> Cause:
        """How the benchmark ended, by its return code."""
        if self.code == 0 and not self.error:
            return Cause("success", "return_code 0")
        found = self.causes.cause()
        if found.name == "unknown" and (self.code or self.error):
            return Cause("other error", self.error or f"return_code {self.code}")
        return found


def read(path: Path) -> Iterator[Found]:
    """The benchmark of a file: the median of the rates that it reported in training."""
    bench = _Bench()
    for line in lines(path):
        try:
            event = json.loads(line)
            bench.take(event["event"], event["data"])
        except (ValueError, KeyError, TypeError):
            bench.broken += bool(line.strip())
    metrics: dict[str, Any] = {} if bench.loss is None else {"train_loss": bench.loss}
    if bench.peak_mib:
        metrics["max_memory_allocated (GB)"] = bench.peak_mib / 1024
    notes = [f"{bench.broken} lines are no events"] if bench.broken else []
    if bench.rates and bench.units == {UNIT}:
        metrics["train_samples_per_second"] = median(bench.rates)
        notes.append(f"median of {len(bench.rates)} reported rates")
    elif bench.units:
        notes.append(f"rates in {', '.join(sorted(bench.units))} are not samples/s: left out")
    if bench.config or bench.rates:
        yield Found(
            metrics=metrics,
            cause=bench.cause(),
            label=str(bench.config.get("name", path.stem)),
            library="milabench",
            note="; ".join(notes),
        )
