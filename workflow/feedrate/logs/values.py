"""Numbers as logs write them."""

import math
import re

_DURATION = re.compile(r"(?:(\d{1,6}) days?, )?(\d{1,6}):(\d\d):(\d\d(?:\.\d+)?)")


def number(value: object) -> float | None:
    """A finite number, or None: transformers 5.x prints numbers as text, 4.x as numbers.

    Durations as `0:01:02.50` or `1 day, 0:00:00` become seconds.
    """
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    if isinstance(value, str):
        duration = _DURATION.fullmatch(value.strip())
        if duration:
            days, hours, minutes, seconds = (float(part or 0) for part in duration.groups())
            return ((days * 24 + hours) * 60 + minutes) * 60 + seconds
    try:
        result = float(value)
    except (ValueError, OverflowError):
        return None
    return result if math.isfinite(result) else None
