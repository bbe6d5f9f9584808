"""Published numbers as data: value, unit, device, levels, source, edition, software, protocol."""

import csv
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from feedrate.config.base import Count, Level, Name, Positive, Strict
from feedrate.config.load import ConfigError


class Published(Strict, kw_only=True):
    """One row of a file in config/published/: a number that somebody printed."""

    id: Annotated[Name, Meta(description="Name that is unique in the file.")]
    device: Annotated[Name, Meta(description="Device of the registry.")]
    count: Annotated[Count, Meta(description="Devices in the job.")]
    levels: Annotated[dict[str, Level], Meta(description="Levels as factor=value, separated by ;.")]
    metric: Annotated[Name, Meta(description="samples_per_s, peak_memory_gib, …")]
    value: Positive
    unit: str
    batch_size: Annotated[Count | None, Meta(description="Per device, where it is stated.")] = None
    edition: Annotated[str, Meta(description="Which state of the source, as YYYY-MM.")]
    software: str = ""
    source: Annotated[str, Meta(description="Title or address of the source.", min_length=1)]
    protocol: Annotated[str, Meta(description="How it was measured, and what is not said.")] = ""
    headline: Annotated[
        bool, Meta(description="The edition that claims and comparison tables use.")
    ] = False


def read_published(path: Path) -> list[Published]:
    """Read one CSV of published numbers.

    Raises ConfigError naming file, line and column for a wrong row.
    """
    if not path.is_file():
        raise ConfigError(f"{path}: no such file; `published` of a study names a CSV file")
    with path.open(newline="", encoding="utf-8") as stream:
        rows = csv.DictReader(stream)
        return [_row(path, rows.line_num, row) for row in rows]


def parse_levels(text: str, separator: str = ";") -> dict[str, Level]:
    """Read `workers=2;decode=host` into {"workers": 2, "decode": "host"}."""
    pairs = (part.split("=", 1) for part in text.split(separator) if part.strip())
    return {name.strip(): parse_level(value.strip()) for name, value in pairs}


def parse_level(text: str) -> Level:
    """Read a level as YAML would: true/false, an integer, a float, else the text itself."""
    if text in ("true", "false"):
        return text == "true"
    for convert in (int, float):
        try:
            return convert(text)
        except ValueError:
            continue
    return text


def _row(path: Path, line: int, row: dict[str, str]) -> Published:
    values: dict[str, object] = {k: v for k, v in row.items() if v not in ("", None)}
    try:
        values["levels"] = parse_levels(row.get("levels") or "")
        if "headline" in values:
            values["headline"] = values["headline"] == "true"
        return msgspec.convert(values, Published, strict=False)
    except (msgspec.ValidationError, ValueError) as error:
        raise ConfigError(f"{path}, line {line}: {error}") from None
