"""Event files of milabench: one JSON object a line. https://github.com/mila-iqia/milabench"""

import json
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

from feedrate.jobs.causes import Cause, CauseReader
from feedrate.logs.reading import Found, lines
from feedrate.logs.trainer import number

IMPORTS = ("*.data",)

UNIT = "items/s"


class _Bench:
    """The content of one file about its benchmark."""

    def __init__(self) -> None:
        self.rates: dict[str, list[float]] = {}
        """The rates in training, by unit."""
        self.metrics: dict[str, Any] = {}
        self.name = ""
        self.causes = CauseReader()
        self.stopped = False
        """Whether milabench had enough rates, so that it ended the benchmark by a signal."""
        self.end = Cause("unknown")

    def take(self, event: str, data: Any) -> None:
        """Take the next event."""
        if event == "line":
            self.causes.feed(str(data).rstrip())
        elif event == "config":
            self.name = str(data.get("name", ""))
        elif event == "error":
            self.causes.feed(f"{data.get('type')}: {data.get('message')}")
        elif event == "stop":
            self.stopped = True
        elif event == "end":
            code = data.get("return_code")
            good = code == 0 or self.stopped
            self.end = Cause("success" if good else "other error", f"return_code {code}")
        elif event == "data":
            rate = number(data.get("rate"))
            if rate is not None and data.get("task", "train") == "train":
                self.rates.setdefault(str(data.get("units", UNIT)), []).append(rate)
            if "loss" in data:
                self.metrics["train_loss"] = data["loss"]
            for card in data.get("gpudata", {}).values():
                peak = self.metrics.get("max_memory_allocated (GB)", 0.0)
                self.metrics["max_memory_allocated (GB)"] = max(peak, card["memory"][0] / 1024)


def read(path: Path) -> Iterator[Found]:
    """The benchmark of a file: the median of the rates that it reported in training."""
    bench, broken = _Bench(), 0
    for line in lines(path):
        try:
            event = json.loads(line)
            bench.take(event["event"], event["data"])
        except (ValueError, LookupError, TypeError, AttributeError):
            broken += bool(line.strip())
    told = "1 line is no event" if broken == 1 else f"{broken} lines are no events"
    notes = [told] if broken else []
    metrics = bench.metrics
    if [*bench.rates] == [UNIT]:
        metrics["train_samples_per_second"] = median(bench.rates[UNIT])
        notes.append(f"median of {len(bench.rates[UNIT])} reported rates")
    elif bench.rates:
        notes.append(f"rates in {', '.join(sorted(bench.rates))} are not samples/s: left out")
    if bench.name or bench.rates:
        printed = bench.causes.cause()  # decides where the return code is not that of a success
        by_code = bench.end.name == "success" or printed.name == "unknown"
        yield Found(
            metrics=metrics,
            cause=bench.end if by_code else printed,
            label=bench.name or path.stem,
            library="milabench",
            note="; ".join(notes),
        )
