"""Numbers, levels and lists as text for readers."""

import math
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import TypeVar

from feedrate.config.values import Level, level_text
from feedrate.jobs.events import NOT_TRIED

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)

Rounding = Callable[[float], float]
"""round, math.floor or math.ceil."""

DASH = "\N{EN DASH}"
TIMES = "\N{MULTIPLICATION SIGN}"
PLUS_MINUS = "\N{PLUS-MINUS SIGN}"
TELLING = 10
"""The interval of a ratio whose ends are further apart says nothing: its ends are not shown."""
UNCERTAIN = "very uncertain"

WIDE = 1.5
"""The ratio of the ends of an interval from which it is not shown as symmetric."""

STATUS_WORDS = {
    "ok": "ok",
    "out_of_memory": "out of memory",
    "failed": "failed",
    "invalid": "rejected by a check",
    "missing": "no result",
    "unsupported": "not supported",
}
"""A cell's status in words."""


def state(status: str, cause: str) -> str:
    """The status of a cell or a run in words. One that a smaller cell ruled out was not tried."""
    return "not tried" if cause.startswith(NOT_TRIED) else STATUS_WORDS[status]


def number(value: float | None, digits: int = 3, to: Rounding = round) -> str:
    """`value` with `digits` significant digits and no exponent: 601, 1,489, 0.0123. Digits before
    the decimal point are never dropped."""
    if value is None:
        return DASH
    if not value:
        return "0"
    rounded = abs(float(f"{value:.{digits - 1}e}"))  # 9.996 has two digits before the point
    magnitude = math.floor(math.log10(rounded))
    return fixed(value, max(0, digits - 1 - magnitude), to)


def fixed(value: float, decimals: int, to: Rounding = round) -> str:
    """`value` with so many decimals. The ends of all intervals are rounded outwards: `to` is
    math.floor for a lower bound and math.ceil for an upper one."""
    scale: float = 10**decimals
    if to is not round:
        nudge = 1e-9 if to is math.floor else -1e-9  # 0.29 * 100 is below 29
        value = to(scale * value + nudge) / scale
    return f"{value:,.{decimals}f}"


def integer(value: int | None) -> str:
    """A count: `1,489`."""
    return DASH if value is None else f"{value:,}"


def exact(value: float) -> str:
    """A published value with the digits of its source: 601.5, 768.7, 6,636."""
    return f"{value:,.0f}" if value == int(value) else f"{value:,}"


def with_interval(value: float | None, low: float | None, high: float | None) -> str:
    """A value with half of its interval: `43.5 ±2.6`; with its ends where they are far apart:
    `7.02 (2.5 to 19)`; without an interval, the value alone."""
    if value is None or low is None or high is None:
        return number(value)
    if high > WIDE * low:
        return f"{number(value)} ({number(low, 2, math.floor)} to {number(high, 2, math.ceil)})"
    return f"{number(value)} {PLUS_MINUS}{number((high - low) / 2, 2, math.ceil)}"


def ratio(value: float | None, low: float | None = None, high: float | None = None) -> str:
    """A ratio with its sign, and its interval if there is one: `1.28 (1.24 to 1.31)`. It has two
    decimals, from 10 on three digits."""
    if value is None:
        return DASH
    words = f"{TIMES}{_decimals(value)}"
    if low is not None and high is None:
        return f"{words} (at least {_decimals(low, math.floor)})"
    if high is not None and low is None:
        return f"{words} (at most {_decimals(high, math.ceil)})"
    if low is None or high is None or low == high:
        return words
    ends = f"{_decimals(low, math.floor)} to {_decimals(high, math.ceil)}"
    return f"{words} ({ends if high <= TELLING * low else UNCERTAIN})"


def _decimals(value: float, to: Rounding = round) -> str:
    """Two decimals; from 10 on three digits, and below 0.1 two."""
    if 0.0995 <= value < 9.995:
        return fixed(value, 2, to)
    return number(value, 3 if value >= 1 else 2, to)


def change(factor: float | None, low: float | None = None, high: float | None = None) -> str:
    """A ratio as a change, with its interval if there is one: `+18% (5 to 32%)`."""
    if factor is None:
        return DASH
    words = signed_percent(factor - 1)
    if low is None or high is None or low == high:
        return words
    return f"{words} ({bounds(low - 1, high - 1) if high <= TELLING * low else UNCERTAIN})"


def bounds(low: float, high: float) -> str:
    """An interval of a share: `5 to 32%`."""
    ends = fixed(100 * low, 0, math.floor), fixed(100 * high, 0, math.ceil)
    return f"{' to '.join(dict.fromkeys(ends))}%"


def percent(share: float) -> str:
    """A share in per cent without the sign: `23`, `-5`, `0.3`, `180`."""
    value = 100 * share
    words = f"{value:.0f}" if abs(value) >= 0.95 or value == 0 else f"{value:.1f}"
    return "0" if float(words) == 0 else words


def signed_percent(share: float) -> str:
    """A change in per cent: `+18%`, `-5%`, `0%`."""
    words = percent(share)
    return f"{words}%" if words.startswith("-") or words == "0" else f"+{words}%"


def share(value: float | None) -> str:
    """A share in per cent: `23%`, `2.4%`, `0.3%`, `0.04%`."""
    if value is None:
        return DASH
    if abs(value) < 0.001:
        return f"{number(100 * value, 1)}%"
    return f"{100 * value:.0f}%" if abs(value) >= 0.0995 else f"{100 * value:.1f}%"


def seconds(value: float | None) -> str:
    """A time, in ms below one second and in s above."""
    if value is None:
        return DASH
    return f"{number(1000 * value)} ms" if abs(value) < 1 else f"{number(value)} s"


def levels_text(levels: Mapping[str, Level]) -> str:
    """Levels as `workers = 2, decode = host`."""
    return ", ".join(f"{name} = {level_text(level)}" for name, level in levels.items())


def values_text(levels: Mapping[str, Level]) -> str:
    """Levels without factor names, for tables whose heading names the factors: `2, host, ddp`."""
    return ", ".join(level_text(level) for level in levels.values())


def listed(items: Iterable[str]) -> str:
    """`a`, `a and b`, `a, b and c`; of items with a comma `a, b; c`."""
    *most, last = list(items) or [""]
    if any(", " in item for item in (*most, last)):
        return "; ".join((*most, last))
    return f"{', '.join(most)} and {last}" if most else last


def grouped(items: Iterable[T], key: Callable[[T], K]) -> dict[K, list[T]]:
    """The items by their keys, both in order of appearance."""
    groups: dict[K, list[T]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups


def uncapital(words: str) -> str:
    """A sentence's start within a sentence."""
    return words[:1].lower() + words[1:]


def counted(value: int, noun: str) -> str:
    """`1 run`, `3 runs`."""
    return f"{value:,} {noun}" if value == 1 else f"{value:,} {noun}s"
