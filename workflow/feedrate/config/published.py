"""Published numbers and scores as data: the CSV files in config/published/."""

import csv
import io
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta

from feedrate.config.devices import Device
from feedrate.config.errors import ConfigError, Findings, not_one_of, raise_all
from feedrate.config.reading import read_text
from feedrate.config.study import Study, setting_type
from feedrate.config.values import (
    Count,
    Level,
    Name,
    Positive,
    Strict,
    about,
    parse_level,
    parse_levels,
)

Row = TypeVar("Row", bound=msgspec.Struct)
Readers = Mapping[str, Callable[[str], Any]]
"""By column, a function that makes a value of its text; it raises ValueError with the reason."""
Percent = Annotated[float, Meta(ge=0, le=100)]


class Published(Strict, kw_only=True):
    """One row of a study's `published` files: a number that somebody printed."""

    id: Annotated[Name, about("Name that is unique in the file.")]
    device: Annotated[Name, about("Device of the registry.")]
    count: Annotated[Count, about("Devices in the job.")]
    levels: Annotated[dict[str, Level], about("Levels as factor=value, separated by ;.")]
    metric: Annotated[Name, about("samples_per_s, peak_memory_gib, …")]
    value: Positive
    unit: str
    batch_size: Annotated[Count | None, about("Per device, where the source states it.")] = None
    edition: Annotated[str, about("Which state of the source, as YYYY-MM.")]
    software: str = ""
    source: Annotated[str, Meta(description="Title or address of the source.", min_length=1)]
    protocol: Annotated[str, about("How it was measured, and what the source leaves open.")] = ""
    headline: Annotated[bool, about("The edition that claims and comparison tables use.")] = False


class BenchmarkScore(Strict, kw_only=True):
    """One row of a study's `published_scores` files: a model's three scores on Winoground."""

    id: Annotated[Name, about("Name that is unique in the file.")]
    model: Annotated[str, Meta(description="As the source calls it.", min_length=1)]
    head: Annotated[str, about("What scores a pair: matching, contrastive; empty: unknown.")] = ""
    text_score: Annotated[Percent, about("Per cent.")]
    image_score: Percent
    group_score: Percent
    edition: Annotated[str, about("Which state of the source, as YYYY-MM.")]
    source: Annotated[str, Meta(description="Title or address of the source.", min_length=1)]
    note: str = ""


def read_published(path: Path, origin: str = "") -> list[Published]:
    """Read a CSV file of published numbers; `origin` names the file in messages.

    Raises ConfigError naming file, line and column of each wrong row.
    """
    readers: dict[str, Callable[[str], Any]] = {"levels": parse_levels}
    readers |= dict.fromkeys(("count", "value", "batch_size", "headline"), parse_level)
    return _read_rows(path, Published, readers, origin or str(path))


def read_scores(path: Path, origin: str = "") -> list[BenchmarkScore]:
    """Read a CSV file of published scores, in the same way."""
    readers = dict.fromkeys(("text_score", "image_score", "group_score"), parse_level)
    return _read_rows(path, BenchmarkScore, readers, origin or str(path))


def check_published(
    origin: str, rows: Iterable[Published], study: Study, devices: Mapping[str, Device]
) -> list[str]:
    """Published rows against the study and the registry. A level need not be one of the study's
    (somebody may have measured 4 workers), but its setting must allow it."""
    found = Findings(origin)
    for row in rows:
        found.known(f"row {row.id}: device", row.device, devices, "entries of config/devices.yaml")
        editions = study.source.editions
        found.known(f"row {row.id}: edition", row.edition, editions, "the study's source.editions")
        for factor, level in row.levels.items():
            key = f"row {row.id}: levels"
            if found.known(key, factor, study.factors, "the study's factors"):
                sets = study.factors[factor].sets
                if sets:
                    found.fits(f"{key}.{factor}", level, setting_type(sets))
                else:
                    known = study.factors[factor].levels
                    found.known(f"{key}.{factor}", level, known, "its levels")
    return found


def _read_rows(path: Path, kind: type[Row], readers: Readers, origin: str) -> list[Row]:
    """Read a CSV file as rows of `kind` with unique ids. An empty field is not given."""
    lines = _lines(path, origin)
    header = lines[0][1]
    raise_all(_header_errors(header, kind, f"{origin}, line 1"))
    rows: list[Row] = []
    wrong: list[str] = []
    seen: dict[str, int] = {}
    for number, fields in lines[1:]:
        found = Findings(f"{origin}, line {number}")
        values = _values(found, header, fields, readers)
        if not found and found.fits("", values, kind):
            first = seen.setdefault(values["id"], number)
            if first == number:
                rows.append(msgspec.convert(values, kind))
            else:
                found.say("id", f"{values['id']!r} occurs in line {first} already")
        wrong += found
    raise_all(wrong)
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


def _header_errors(header: list[str], kind: type[msgspec.Struct], place: str) -> list[str]:
    """Columns that are unknown, missing or duplicate."""
    columns = {field.name: field.required for field in msgspec.structs.fields(kind)}
    twice = dict.fromkeys(name for name in header if header.count(name) > 1)
    lines = [f"{place}: {name!r}: the column occurs twice" for name in twice]
    unknown = [name for name in header if name not in columns]
    lines += [f"{place}: column {not_one_of(name, columns)}" for name in unknown]
    missing = [name for name, required in columns.items() if required and name not in header]
    return lines + ([f"{place}: columns missing: {', '.join(missing)}"] if missing else [])


def _values(
    found: Findings, header: Collection[str], fields: list[str], readers: Readers
) -> dict[str, Any]:
    """A line's values by column; adds its errors to `found`."""
    if len(fields) != len(header):
        hint = " (a text with a comma needs quotes)" if len(fields) > len(header) else ""
        found.say("", f"{len(fields)} fields, but the header has {len(header)}{hint}")
        return {}
    texts = dict(zip(header, (field.strip() for field in fields), strict=True))
    # A cell may have no levels at all, but the key is required.
    values: dict[str, Any] = {k: text for k, text in texts.items() if text or k == "levels"}
    for name, read in readers.items():
        if name in values:
            try:
                values[name] = read(values[name])
            except ValueError as error:
                found.say(name, str(error))
    return values
