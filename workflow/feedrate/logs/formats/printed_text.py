"""What a Trainer prints: dicts (numbers in 4.x, numbers as text in 5.x) and tables."""

import re
from pathlib import Path

from feedrate.logs.trainer import number, read_log

ORDER = 3
FILES = ("*.log", "*.out", "*.txt")

_DICT = re.compile(r"\{'[^{}\n]{1,20000}\}")
_PAIR = re.compile(r"'([^'\n]{1,100})':\s*'?([^',}\n]{1,60})")
_HEADING = re.compile(r"\*{5} (\w{1,40}) metrics \*{5}")
_ROW = re.compile(r"^\s*(\w[\w ()]{0,80}?)\s*=\s*(\S.{0,60}?)\s*$")
_UNITS = {"GF": 2**30, "MB": 1}


def metrics(folder: Path) -> dict[str, float]:
    """The training's metrics; the first of several files takes precedence."""
    values: dict[str, float] = {}
    for path in sorted(path for pattern in FILES for path in folder.glob(pattern)):
        values = printed_metrics(read_log(path)) | values
    return values


def printed_metrics(text: str, split: str = "train") -> dict[str, float]:
    """Finite metrics of a split; of several values of a key the last.

    Dicts take precedence over the tables under `***** train metrics *****`, whose figures are
    rounded.
    """
    found = _tables(text, split)
    for printed in _DICT.finditer(text):
        pairs = {key: number(value.strip()) for key, value in _PAIR.findall(printed[0])}
        if f"{split}_runtime" in pairs:
            found |= {key: value for key, value in pairs.items() if value is not None}
    return found


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
        value = number(row[2].removesuffix(unit) if unit in _UNITS else row[2])
        if value is not None:
            values[row[1]] = value * _UNITS.get(unit, 1)
    return values
