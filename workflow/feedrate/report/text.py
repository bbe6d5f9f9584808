"""Numbers, levels and lists as text for readers."""

import math
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import TypeVar

from feedrate.config.values import Level, level_text
from feedrate.jobs.events import NOT_TRIED
from feedrate.results.statistics import ratio_text

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)

DASH = "\N{EN DASH}"
TIMES = "\N{MULTIPLICATION SIGN}"

STATUS_WORDS = {
    "ok": "ok",
    "out_of_memory": "out of memory",
    "failed": "failed",
    "invalid": "rejected by a check",
    "missing": "no result",
    "unsupported": "not supported",
    "absent": "not run",
    "excluded": "left out",
}
"""A cell's status in words. An `absent` cell is missing in the results; the study leaves out an
`excluded` cell on purpose."""


def state(status: str, cause: str) -> str:
    """The status of a cell or a run in words. One that a smaller cell ruled out was not tried."""
    return "not tried" if cause.startswith(NOT_TRIED) else STATUS_WORDS[status]


def number(value: float | None, digits: int = 4) -> str:
    """`value` with `digits` significant digits and no exponent: 601.5, 1,489, 0.01230."""
    if value is None:
        return DASH
    magnitude = math.floor(math.log10(abs(value))) if value else 0
    return f"{value:,.{max(0, digits - 1 - magnitude)}f}"


def integer(value: int | None) -> str:
    """A count: `1,489`."""
    return DASH if value is None else f"{value:,}"


def exact(value: float) -> str:
    """A published value with the digits of its source: 601.5, 768.7, 6,636."""
    return f"{value:,.0f}" if value == int(value) else f"{value:,}"


def rate(value: float | None) -> str:
    """A throughput in samples/s."""
    return DASH if value is None else f"{number(value)} samples/s"


def ratio(value: float | None) -> str:
    """A ratio with its sign: two decimals, from 10 on three digits."""
    return DASH if value is None else f"{TIMES}{ratio_text(value)}"


def share(value: float | None) -> str:
    """A share in per cent: `23%`, `2.4%`, `0.3%`."""
    if value is None:
        return DASH
    percent = 100 * value
    return f"{percent:.0f}%" if abs(percent) >= 10 else f"{percent:.1f}%"


def seconds(value: float | None) -> str:
    """A time, in ms below one second and in s above."""
    if value is None:
        return DASH
    return f"{number(1000 * value, 3)} ms" if abs(value) < 1 else f"{number(value, 3)} s"


def interval(low: float | None, high: float | None) -> str:
    """An interval as `588 to 612`; empty where there is none."""
    return "" if low is None or high is None else f"{number(low)} to {number(high)}"


def ratio_interval(low: float | None, high: float | None) -> str:
    """An interval of a ratio as `1.05 to 1.12`; empty where there is none (a cell over itself)."""
    if low is None or high is None or low == high:
        return ""
    return f"{ratio_text(low)} to {ratio_text(high)}"


def with_remark(words: str, remark: str) -> str:
    """`words (remark)`; only the words where the remark is empty."""
    return f"{words} ({remark})" if remark else words


def with_interval(
    value: float | None, low: float | None, high: float | None, unit: str = ""
) -> str:
    """A value with its unit and its interval: `23.28 samples/s (22.9 to 23.6)`."""
    return with_remark(f"{number(value)} {unit}".strip(), interval(low, high))


def levels_text(levels: Mapping[str, Level]) -> str:
    """Levels as `workers = 2, decode = host`."""
    return ", ".join(f"{name} = {level_text(level)}" for name, level in levels.items())


def listed(items: Iterable[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    *most, last = list(items) or [""]
    return f"{', '.join(most)} and {last}" if most else last


def grouped(items: Iterable[T], key: Callable[[T], K]) -> dict[K, list[T]]:
    """The items by their keys, both in order of appearance."""
    groups: dict[K, list[T]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups


def counted(value: int, noun: str) -> str:
    """`1 run`, `3 runs`."""
    return f"{value:,} {noun}" if value == 1 else f"{value:,} {noun}s"


def values_text(levels: Mapping[str, Level]) -> str:
    """Levels without factor names, for tables whose heading names the factors: `2, host, ddp`."""
    return ", ".join(level_text(level) for level in levels.values())
