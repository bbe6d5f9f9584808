"""What limits a cell: a name, and what a loader that never lets the device wait would gain."""

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
    thresholds: Thresholds,
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
    return Limit(_name(cell, thresholds, used, low, high), low, high)


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
    faster = (other.high or 0.0 for other in others if (other.low or 0.0) > model / starts)
    most = max([most, *faster])
    if (cell["world_size"] or 1) > 1:  # the model alone exchanges no gradients either
        exchange = cell.get("exchange_ratio_low")
        low = 1 / (1 / low + 1 / exchange) if exchange else 1.0
    return max(low / starts - 1, 0.0), max(most - 1, 0.0)


def _name(cell: Row, thresholds: Thresholds, memory: float, low: float, high: float) -> Name:
    """The first limit for which there is evidence; "" if the range is on both sides of
    `limit_ratio`. `memory` is the share of the device's memory that is used."""
    least, is_long = thresholds.limit_ratio, _wait(cell) >= thresholds.long_wait_share
    if cell.get("slow_rank") is not None and _at_least(cell, "slow_rank_ratio_low", least):
        return "slow rank"
    if _starts_epochs(cell, thresholds):
        return "starting epochs"
    loses = (cell["world_size"] or 1) > 1 and _at_least(cell, "model_ratio_low", least)
    if loses and not is_long and _exchange_explains(cell, thresholds):
        return "gradient exchange"
    if _lacks_cores(cell, thresholds):
        return "CPU cores"
    if low >= least - 1:
        return "data loading"
    if memory >= thresholds.full_memory_share and not is_long:
        return "memory"
    if high < least - 1:
        busy = cell.get("device_busy_share")
        return "launching" if busy is not None and busy < DEVICE_BUSY else "computing"
    return ""


def _starts_epochs(cell: Row, thresholds: Thresholds) -> bool:
    """Whether the first steps of epochs take long, beyond the noise assumed for runs."""
    share = cell.get("epoch_start_share") or 0.0
    noise = assumed_noise(thresholds.noise_share, [cell.get("block_noise")])
    shares = [share] * (cell.get("ok_runs") or 1)
    low = share and median_interval(shares, thresholds.confidence, noise).low
    return (low or 0.0) >= thresholds.long_wait_share


def _exchange_explains(cell: Row, thresholds: Thresholds) -> bool:
    """Whether exchanging gradients takes at least half of the time that is lost (by the ends of the
    intervals that are against it) or, where the exchange was not measured, the loss is large."""
    exchange = cell.get("exchange_ratio_high")
    if exchange is None:
        return _at_least(cell, "model_ratio_low", thresholds.headroom)
    return bool(1 / exchange >= (1 - 1 / cell["model_ratio_high"]) / 2)


def _lacks_cores(cell: Row, thresholds: Thresholds) -> bool:
    """Whether loader and model share too few cores: each alone is faster, and the job's threads
    keep its cores full or wait for a free one. A loader without workers is serial."""
    if cell["loader_workers"] == 0 and not cell["decodes_on_device"]:
        return False
    busy, waited = cell.get("cores_busy_share") or 0.0, cell.get("cores_waited_share") or 0.0
    return (
        (busy >= CORES_FULL or waited >= CORES_WAITED)
        and _at_least(cell, "loader_ratio_low", thresholds.headroom)
        and (cell.get("model_ratio_low") or 0.0) > 1
        and _at_least(cell, "model_ratio", thresholds.limit_ratio)
    )


def _at_least(cell: Row, name: str, least: float) -> bool:
    return (cell.get(name) or 0.0) >= least


def _wait(cell: Row) -> float:
    """Share of the time spent waiting for data; copies count where nothing else runs meanwhile: a
    CPU has no queue of work."""
    copies = cell.get("copy_wait_share") or 0.0 if cell.get("device_kind") == "cpu" else 0.0
    return float(cell["data_wait_share"] + copies)
