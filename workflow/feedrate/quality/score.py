"""One figure of quality.json, as the readers in results/ expect it."""

import math
from typing import Any

from feedrate.quality.bootstrap import Estimate

Entry = dict[str, Any]


def entry(
    metric: str,
    found: Estimate | None,
    n: int,
    *,
    chance: float | None = None,
    note: str = "",
) -> Entry:
    """A metric's mean over `n` with its interval and what chance gives.

    A value that is not a finite number is none: a model that diverged has no score.
    """
    value, low, high = found or (None, None, None)
    if value is not None and not math.isfinite(value):
        return _entry(metric, (None, None, None), n, chance, "not a finite number")
    return _entry(metric, (value, _finite(low), _finite(high)), n, chance, note)


def _entry(
    metric: str, found: tuple[Any, Any, Any], n: int, chance: float | None, note: str
) -> Entry:
    ends = dict(zip(("value", "low", "high"), found, strict=True))
    return {"metric": metric, **ends, "n": n, "chance": chance, "note": note}


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
