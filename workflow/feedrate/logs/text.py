"""Plain text: what a Trainer prints, and what optimum-habana warns of."""

import math
import re
from pathlib import Path

# Numbers as logs write them.

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


LIMIT_BYTES = 8 * 2**20
"""Of a longer log the first and the last half of this are read."""

MAX_CHARS = 300
"""Of a cause."""

_SECRET = re.compile(r"\b(?:hf|gh[pousr])_[A-Za-z0-9]{16,}")
_PRINTED = re.compile(r"\{'[^{}\n]{1,20000}\}")
_PAIR = re.compile(r"'([^'\n]{1,100})':\s*'?([^',}\n]{1,60})")
_HEADING = re.compile(r"\*{5} (\w{1,40}) metrics \*{5}")
_ROW = re.compile(r"^\s*(\w[\w ()]{0,80}?)\s*=\s*(\S.{0,60}?)\s*$")
_UNITS = {"GF": 2**30, "MB": 1}
_FALLBACK = re.compile(r"Using Pytorch native dataloader because:[ \t]*(.{0,500})")


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


def printed_metrics(text: str, split: str = "train") -> dict[str, float]:
    """Metrics that were printed, finite ones only; of several values of a key the last.

    Reads the dicts of 4.x (numbers) and 5.x (numbers as text) and the tables under
    `***** train metrics *****`, whose rounded figures give way to those of the dicts.
    """
    found = _tables(text, split)
    for printed in _PRINTED.finditer(text):
        pairs = {key: number(value.strip()) for key, value in _PAIR.findall(printed[0])}
        if f"{split}_runtime" in pairs:
            found |= {key: value for key, value in pairs.items() if value is not None}
    return found


def fallback_reason(text: str) -> str | None:
    """Why optimum-habana's on-device loader gave way to the host's; None where it did not.

    It says so in one warning and goes on, so a run that asked for on-device decoding is invalid.
    """
    found = _FALLBACK.search(text)
    return (found[1].strip().rstrip(".") or "no reason given") if found else None


def _tables(text: str, split: str) -> dict[str, float]:
    """The rows under each `***** <split> metrics *****`."""
    values: dict[str, float] = {}
    inside = False
    for line in re.split(r"[\r\n]", text):
        heading = _HEADING.search(line)
        if heading:
            inside = heading[1] == split
            continue
        row = _ROW.match(line) if inside else None
        if row is None:
            inside = inside and not line.strip()
            continue
        unit = row[2][-2:]
        scale = _UNITS.get(unit, 1)
        value = number(row[2].removesuffix(unit) if unit in _UNITS else row[2])
        if value is not None:
            values[row[1]] = value * scale
    return values
