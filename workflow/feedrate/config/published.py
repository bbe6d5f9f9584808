"""Published numbers as data: value, unit, device, levels, source, edition, software, protocol."""

import csv
import io
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from feedrate.config.base import Count, Level, Name, Positive, Strict
from feedrate.config.load import ConfigError, all_of, parse_level, problems, read_text

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
    origin = origin or str(path)
    lines = _lines(path, origin)
    header = lines[0][1]
    wrong = _header_problems(header, f"{origin}, line 1")
    if wrong:
        raise all_of(wrong)
    rows: list[Published] = []
    seen: dict[str, int] = {}
    for number, fields in lines[1:]:
        place = f"{origin}, line {number}"
        row, faults = _row(header, fields, place)
        if row and row.id in seen:
            faults = [f"{place}: id: {row.id!r} stands already in line {seen[row.id]}"]
        elif row:
            rows.append(row)
            seen[row.id] = number
        wrong += faults
    if wrong:
        raise all_of(wrong)
    return rows


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


def _lines(path: Path, origin: str) -> list[tuple[int, list[str]]]:
    """The fields of each line that is not empty, with its number."""
    reader = csv.reader(io.StringIO(read_text(path, origin)))
    try:
        lines = [(reader.line_num, fields) for fields in reader if fields]
    except csv.Error as error:
        raise ConfigError(f"{origin}, line {reader.line_num}: {error}") from None
    if not lines:
        raise ConfigError(f"{origin}: the file is empty")
    return lines


def _header_problems(header: list[str], place: str) -> list[str]:
    """Columns that are unknown, missing or there twice."""
    columns = {field.name: field.required for field in msgspec.structs.fields(Published)}
    twice = dict.fromkeys(name for name in header if header.count(name) > 1)
    lines = [f"{place}: {name!r}: the column stands twice" for name in twice]
    unknown = [name for name in header if name not in columns]
    if unknown:
        from feedrate.config.explain import not_one_of  # heavy, and only needed after a failure

        lines += [f"{place}: column {not_one_of(name, columns)}" for name in unknown]
    missing = [name for name, required in columns.items() if required and name not in header]
    return lines + ([f"{place}: columns missing: {', '.join(missing)}"] if missing else [])


def _row(header: list[str], fields: list[str], place: str) -> tuple[Published | None, list[str]]:
    if len(fields) != len(header):
        hint = " (a text with a comma needs quotes)" if len(fields) > len(header) else ""
        return None, [f"{place}: {len(fields)} fields, but the header has {len(header)}{hint}"]
    texts = dict(zip(header, (field.strip() for field in fields), strict=True))
    values: dict[str, Any] = {k: v for k, v in texts.items() if v}
    values |= {k: parse_level(values[k]) for k in _NUMBERS if k in values}
    try:
        values["levels"] = parse_levels(texts["levels"])
    except ValueError as error:
        return None, [f"{place}: levels: {error}"]
    wrong = problems(values, Published, place)
    return (None, wrong) if wrong else (msgspec.convert(values, Published), [])
