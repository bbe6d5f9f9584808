"""Published numbers as data: value, unit, device, levels, source, edition, software, protocol."""

import csv
import io
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta

from feedrate.config.base import Count, Level, Name, Positive, Strict
from feedrate.config.load import ConfigError, all_of, parse_level, problems, read_text

# CSV files of the configuration: typed rows, each with an `id` that stands once.

Row = TypeVar("Row", bound=msgspec.Struct)
Readers = Mapping[str, Callable[[str], Any]]
"""By column, what makes a value of its text; it raises ValueError with the reason."""


def read_rows(
    path: Path, kind: type[Row], numbers: Collection[str], readers: Readers, origin: str
) -> list[Row]:
    """Read one CSV file as rows of `kind`; `origin` is the file's name in messages.

    The columns in `numbers` are read as YAML would read them, those in `readers` by these, and all
    others are text; an empty field is one that is not given. Raises ConfigError naming file, line
    and column for each wrong row.
    """
    lines = _lines(path, origin)
    header = lines[0][1]
    wrong = _header_problems(header, kind, f"{origin}, line 1")
    if wrong:
        raise all_of(wrong)
    rows: list[Row] = []
    seen: dict[str, int] = {}
    for number, fields in lines[1:]:
        place = f"{origin}, line {number}"
        values, faults = _values(header, fields, numbers, readers, place)
        if values is not None:
            faults = problems(values, kind, place)
        if values is not None and not faults:
            if values["id"] in seen:
                first = seen[values["id"]]
                faults = [f"{place}: id: {values['id']!r} stands already in line {first}"]
            else:
                rows.append(msgspec.convert(values, kind))
                seen[values["id"]] = number
        wrong += faults
    if wrong:
        raise all_of(wrong)
    return rows


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


def _header_problems(header: list[str], kind: type[msgspec.Struct], place: str) -> list[str]:
    """Columns that are unknown, missing or there twice."""
    columns = {field.name: field.required for field in msgspec.structs.fields(kind)}
    twice = dict.fromkeys(name for name in header if header.count(name) > 1)
    lines = [f"{place}: {name!r}: the column stands twice" for name in twice]
    unknown = [name for name in header if name not in columns]
    if unknown:
        from feedrate.config.explain import not_one_of  # heavy, and only needed after a failure

        lines += [f"{place}: column {not_one_of(name, columns)}" for name in unknown]
    missing = [name for name, required in columns.items() if required and name not in header]
    return lines + ([f"{place}: columns missing: {', '.join(missing)}"] if missing else [])


def _values(
    header: list[str],
    fields: list[str],
    numbers: Collection[str],
    readers: Readers,
    place: str,
) -> tuple[dict[str, Any] | None, list[str]]:
    """A line's values by column, or what is wrong with it."""
    if len(fields) != len(header):
        hint = " (a text with a comma needs quotes)" if len(fields) > len(header) else ""
        return None, [f"{place}: {len(fields)} fields, but the header has {len(header)}{hint}"]
    texts = dict(zip(header, (field.strip() for field in fields), strict=True))
    values: dict[str, Any] = {k: v for k, v in texts.items() if v}
    values |= {k: parse_level(values[k]) for k in numbers if k in values}
    for name, read in readers.items():
        try:
            values[name] = read(texts[name])
        except ValueError as error:
            return None, [f"{place}: {name}: {error}"]
    return values, []


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


# Published scores on Winoground as data: which model, which head, and who says so.

_SCORES = ("text_score", "image_score", "group_score")
Percent = Annotated[float, Meta(ge=0, le=100)]


class BenchmarkScore(Strict, kw_only=True):
    """One row of a file of `published_scores`: a model's three scores on Winoground."""

    id: Annotated[Name, Meta(description="Name that is unique in the file.")]
    model: Annotated[str, Meta(description="As the source calls it.", min_length=1)]
    head: Annotated[
        str, Meta(description="What scores a pair: matching, contrastive, …; empty: not said.")
    ] = ""
    text_score: Annotated[Percent, Meta(description="Per cent.")]
    image_score: Percent
    group_score: Percent
    edition: Annotated[str, Meta(description="Which state of the source, as YYYY-MM.")]
    source: Annotated[str, Meta(description="Title or address of the source.", min_length=1)]
    note: str = ""


def read_scores(path: Path, origin: str = "") -> list[BenchmarkScore]:
    """Read one CSV of published scores; `origin` is the file's name in messages.

    Raises ConfigError naming file, line and column for each wrong row.
    """
    return read_rows(path, BenchmarkScore, _SCORES, {}, origin or str(path))
