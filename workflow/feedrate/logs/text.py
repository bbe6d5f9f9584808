"""Plain text in logs: numbers, tokens to hide, and what optimum-habana warns about."""

import math
import re
from pathlib import Path

LIMIT_BYTES = 8 * 2**20
"""Of a longer log, the first and the last half of this are read."""
MAX_CHARS = 300
"""Longest cause."""

_DURATION = re.compile(r"(?:(\d{1,6}) days?, )?(\d{1,6}):(\d\d):(\d\d(?:\.\d+)?)")
_SECRET = re.compile(r"\b(?:hf|gh[pousr])_[A-Za-z0-9]{16,}")
_FALLBACK = re.compile(r"Using Pytorch native dataloader because:[ \t]*(.{0,500})")


def number(value: object) -> float | None:
    """A finite number, or None: transformers 5.x prints numbers as text, 4.x as numbers.

    Durations such as `0:01:02.50` or `1 day, 0:00:00` become seconds.
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


def one_line(text: str) -> str:
    """`text` on one line, at most MAX_CHARS long, without access tokens."""
    text = _SECRET.sub("(token)", " ".join(text.split()))
    return text if len(text) <= MAX_CHARS else text[: MAX_CHARS - 1] + "…"


def read_log(path: Path) -> str:
    """A log as text, whatever its bytes; empty where there is none."""
    try:
        with path.open("rb") as stream:
            head = stream.read(LIMIT_BYTES // 2)
            size = stream.seek(0, 2)
            stream.seek(max(len(head), size - LIMIT_BYTES // 2))
            tail = stream.read()
    except OSError:
        return ""
    return (head + tail).decode("utf-8", errors="replace")


def fallback_reason(text: str) -> str | None:
    """Why optimum-habana's on-device loader fell back to the host's; None where it did not.

    It prints one warning and continues, so a run that asked for on-device decoding is invalid.
    """
    found = _FALLBACK.search(text)
    return (found[1].strip().rstrip(".") or "no reason given") if found else None
