"""What limits a cell: a name, and what a loader that never lets the device wait would gain."""

import math
from collections.abc import Iterable
from typing import Literal, NamedTuple

from feedrate.config.study import Thresholds
from feedrate.results.files import Row
from feedrate.results.parts import names_of
from feedrate.results.statistics import Estimate, assumed_noise, median_interval

Name = Literal[
    "", "data loading", "starting epochs", "CPU cores", "slow rank", "gradient exchange",
    "launching", "memory", "computing",
]  # fmt: skip

CORES_FULL = 0.90
"""Share of its cores' time from which a job lacks cores."""
CORES_WAITED = 0.15
"""The same for its threads' wait for a core. Clean runs show 2 to 11%, a worker
that takes 80% of a core from the model 18%."""
DEVICE_BUSY = 0.90
"""Share of the time with a kernel from which a device that never waits for data is busy."""
LEAST_WORK = 0.01
"""Share of the time in which a device works at least, for a bound from its wait."""


class Limit(NamedTuple):
    """The limit of a cell, and the gain that a perfect loader would bring, as a range at 95%."""

    name: Name
    gain_low: float | None = None
    gain_high: float | None = None


def limit_of(
    cell: Row,
    lines: Thresholds,
    memory_gib: float | None,
    others: Iterable[Estimate] = (),
    luck: float = 0.0,
) -> Limit:
    """The limit of a cell's row. `memory_gib` is the device's, as registered; `others` are the
    rates of cells that compute the same, over this cell's; `luck` is the share by which this cell
    may only seem fast, because it was chosen for that."""
    if cell["status"] == "out_of_memory":
        return Limit("memory")
    if cell["status"] != "ok" or cell["task"] == "inference":
        return Limit("")
    low, high = _gain(cell, others, luck)
    memory = memory_gib and (cell.get("device_memory_gib") or memory_gib)
    used = (cell["peak_memory_gib"] or 0.0) / memory if memory else 0.0
    return Limit(_name(cell, lines, used, low, high), low, high)


def _gain(cell: Row, others: Iterable[Estimate], luck: float) -> tuple[float, float]:
    """The bounds of the gain, from the model alone: it needs no loader, and no epoch starts in its
    blocks. Where it lies below the cell's own rate or another's, it is not a ceiling: the range
    then reaches to what the wait or the other cell shows. So does a range without it."""
    by_wait = 1 / max(1 - _wait(cell), LEAST_WORK)
    model, low, high = (cell.get(name) for name in names_of("model"))
    if not (model and low and high):
        return 0.0, by_wait - 1
    starts = 1 - (cell.get("epoch_start_share") or 0.0)
    most = high / starts * (1 + luck)
    if high < 1:
        most = max(most, by_wait)
    for other in others:
        if other.low and other.high and other.low > model / starts:
            most = max(most, other.high)
    if (cell["world_size"] or 1) > 1:  # the model alone exchanges no gradients either
        exchange = cell.get("exchange_ratio_low")
        low = 1 / (1 / low + 1 / exchange) if exchange else 1.0
    return max(low / starts - 1, 0.0), max(most - 1, 0.0)


def _name(cell: Row, lines: Thresholds, memory: float, low: float, high: float) -> Name:
    """The first limit for which there is evidence; "" if the range is on both sides of the line.
    `memory` is the share of the device's memory that is used."""
    line, is_long = lines.replay_gain - 1, _wait(cell) >= lines.long_wait_share
    model_low = cell.get("model_ratio_low") or 0.0
    if cell.get("slow_rank") is not None and _at_least(cell, "slow_rank_ratio_low", 1 + line):
        return "slow rank"
    if _starts_epochs(cell, lines):
        return "starting epochs"
    loses = (cell["world_size"] or 1) > 1 and model_low >= 1 + line and not is_long
    if loses and _exchange_explains(cell, lines):
        return "gradient exchange"
    if _lacks_cores(cell, lines):
        return "CPU cores"
    if low >= line:
        return "data loading"
    if memory >= lines.full_memory_share and not is_long:
        return "memory"
    if high < line:
        busy = cell.get("device_busy_share")
        return "launching" if busy is not None and busy < DEVICE_BUSY else "computing"
    return ""


def _starts_epochs(cell: Row, lines: Thresholds) -> bool:
    """Whether the first steps of epochs take long, beyond the noise assumed for runs."""
    share = cell.get("epoch_start_share") or 0.0
    if share <= 0:
        return False
    noise = assumed_noise(lines.noise_share, [cell.get("block_noise")])
    found = median_interval([share] * (cell.get("ok_runs") or 1), lines.confidence, noise)
    return (found.low or 0.0) >= lines.long_wait_share


def _exchange_explains(cell: Row, lines: Thresholds) -> bool:
    """Whether exchanging gradients takes at least half of the time that is lost (by the ends of the
    intervals that are against it) or, where the exchange was not measured, the loss is large."""
    exchange = cell.get("exchange_ratio_high")
    if exchange is None:
        return _at_least(cell, "model_ratio_low", lines.headroom)
    return bool(1 / exchange >= (1 - 1 / cell["model_ratio_high"]) / 2)


def _lacks_cores(cell: Row, lines: Thresholds) -> bool:
    """Whether loader and model share too few cores: each alone is faster, and the job's threads
    keep its cores full or wait for a free one. A loader without workers is serial."""
    if cell["loader_workers"] == 0 and not cell["decodes_on_device"]:
        return False
    short = _at_least(cell, "cores_busy_share", CORES_FULL)
    short |= _at_least(cell, "cores_waited_share", CORES_WAITED)
    loader_is_faster = _at_least(cell, "loader_ratio_low", lines.headroom)
    model_is_faster = _at_least(cell, "model_ratio_low", math.nextafter(1, 2))
    model_is_faster &= _at_least(cell, "model_ratio", lines.replay_gain)
    return short and loader_is_faster and model_is_faster


def _at_least(cell: Row, name: str, line: float) -> bool:
    return (cell.get(name) or 0.0) >= line


def _wait(cell: Row) -> float:
    """Share of the time spent waiting for data; copies count where nothing else runs meanwhile: a
    CPU has no queue of work."""
    copies = cell.get("copy_wait_share") or 0.0 if cell.get("device_kind") == "cpu" else 0.0
    return float(cell["data_wait_share"] + copies)
