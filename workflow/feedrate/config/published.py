"""Published numbers as data: value, unit, device, levels, source, edition, software, protocol."""

from pathlib import Path
from typing import Annotated

from msgspec import Meta

from feedrate.config.base import Count, Level, Name, Positive, Strict
from feedrate.config.csv_rows import read_rows
from feedrate.config.load import parse_level

_NUMBERS = ("count", "value", "batch_size", "headline")
"""Columns that are read as YAML would read them; all others are text."""


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


def read_published(path: Path, origin: str = "") -> list[Published]:
    """Read one CSV of published numbers; `origin` is the file's name in messages.

    Raises ConfigError naming file, line and column for each wrong row.
    """
    readers = {"levels": parse_levels}
    return read_rows(path, Published, _NUMBERS, readers, origin or str(path))


def parse_levels(text: str, separator: str = ";") -> dict[str, Level]:
    """Read `workers=2;decode=host` into {"workers": 2, "decode": "host"}.

    Raises ValueError, with the reason, for a part that is no factor=value or a factor named twice.
    """
    levels: dict[str, Level] = {}
    for part in text.split(separator):
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if not part.strip():
            continue
        if not (name and equals and value):
            raise ValueError(f"{part.strip()!r} is not allowed; expected factor=value")
        if name in levels:
            raise ValueError(f"the factor {name!r} stands twice")
        levels[name] = parse_level(value)
    return levels
