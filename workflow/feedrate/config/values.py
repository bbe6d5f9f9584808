"""Names, counts and levels, and strict reading of the YAML and CSV files that hold them."""

import csv
import io
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, TypeVar, dataclass_transform

import msgspec
import yaml

from feedrate.config.errors import ConfigError, Origin, Problems, raise_all
from feedrate.core.errors import first_line

try:
    from yaml import CSafeLoader as SafeLoader  # ten times faster, where PyYAML was built with it
except ImportError:
    from yaml import SafeLoader

T = TypeVar("T")
AnyRow = TypeVar("AnyRow", bound=msgspec.Struct)

Name = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.+-]*$(?!\n)")]
"""A word that can be part of a path: letters, digits and _ . + - (errors.py explains it)."""

Text = Annotated[str, msgspec.Meta(min_length=1)]
Count = Annotated[int, msgspec.Meta(ge=1)]
Natural = Annotated[int, msgspec.Meta(ge=0)]
Positive = Annotated[float, msgspec.Meta(gt=0)]
NotNegative = Annotated[float, msgspec.Meta(ge=0)]
Share = Annotated[float, msgspec.Meta(ge=0, le=1)]

MOST_REPEATS = 1000
Repeats = Annotated[int, msgspec.Meta(ge=1, le=MOST_REPEATS)]
Seed = Annotated[int, msgspec.Meta(ge=0, le=2**32 - MOST_REPEATS)]
"""The seed of repeat 1, so that no repeat's is above numpy's largest, 2**32 - 1."""

Level = bool | int | float | str  # a value that a factor takes

BETWEEN_LEVELS = "~"
"""Separates the levels in a cell's name. Names cannot contain it, shells do not expand it within a
word, and Snakemake can pass it to cluster jobs (it cannot pass a comma)."""

_INTEGER = re.compile(r"[-+]?(0|[1-9][0-9]*)$")
_FLOAT = re.compile(r"[-+]?((\.[0-9]+|[0-9]+\.[0-9]*)([eE][-+]?[0-9]+)?|[0-9]+[eE][-+]?[0-9]+)$")


@dataclass_transform(frozen_default=True, field_specifiers=(msgspec.field,))
class Strict(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An immutable configuration object: an unknown key or a value of a wrong type is an error."""


def about(description: str) -> msgspec.Meta:
    """The description of a key, for its JSON schema."""
    return msgspec.Meta(description=description)


def level_text(level: Level) -> str:
    """A level as YAML writes it."""
    return str(level).lower() if isinstance(level, bool) else str(level)


def parse_level(text: str) -> Level:
    """Read a plain value as YAML does: true or false, an integer, a float, else the text itself."""
    if text in ("true", "false"):
        return text == "true"
    if _INTEGER.match(text):
        return int(text)
    return float(text) if _FLOAT.match(text) else text


def parse_levels(text: str, separator: str = ";") -> dict[str, Level]:
    """Read `workers=2;decode=host` as {"workers": 2, "decode": "host"}. Raises ValueError."""
    levels: dict[str, Level] = {}
    for part in text.split(separator):
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if not part.strip():
            continue
        if not (name and equals and value):
            raise ValueError(f"{part.strip()!r} is not allowed; expected factor=value")
        if name in levels:
            raise ValueError(f"the factor {name!r} occurs twice")
        levels[name] = parse_level(value)
    return levels


def cell_name(levels: Mapping[str, Level]) -> str:
    """The cell's name in paths and columns: `workers=2~decode=host`."""
    return BETWEEN_LEVELS.join(f"{factor}={level_text(level)}" for factor, level in levels.items())


def cell_text(cell: str) -> str:
    """A cell's name for readers: `workers=2, decode=host`."""
    return cell.replace(BETWEEN_LEVELS, ", ")


def duration_text(seconds: float) -> str:
    """`48 s`, `3:05` (minutes) or `2:03:05` (hours)."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}:{minutes:02}:{rest:02}"
    return f"{minutes}:{rest:02}" if minutes else f"{rest} s"


def size_text(size: float) -> str:
    """A number of bytes with three digits: `1.95 TiB`, `23.4 GiB`, `64 MiB`, `512 bytes`."""
    for power, unit in ((5, "PiB"), (4, "TiB"), (3, "GiB"), (2, "MiB"), (1, "KiB")):
        if size >= 0.95 * 1024**power:  # so that 1,000 MiB is 0.977 GiB
            return f"{size / 1024**power:.3g} {unit}"
    return f"{size:.0f} bytes"


def rate_text(samples_per_s: float) -> str:
    """Samples/s in a sentence, never as a power of ten: 0.0312, 14.3, 602.1, 15,234."""
    return f"{samples_per_s:.4g}" if samples_per_s < 1000 else f"{samples_per_s:,.0f}"


class _Loader(SafeLoader):
    """Reads plain values as YAML 1.2 does; keys are text, and a duplicate one is an error."""

    yaml_implicit_resolvers: dict[str, Any] = {}

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[str, Any]:
        """The values of a mapping by the text of their keys."""
        values: dict[str, Any] = {}
        for key, value in node.value:
            fault = ""
            if not isinstance(key, yaml.ScalarNode):
                fault = "a key must be a word"
            elif key.value in values:
                fault = f"the key {key.value!r} occurs twice"
            if fault:
                raise yaml.constructor.ConstructorError(None, None, fault, key.start_mark)
            values[key.value] = self.construct_object(value, deep=deep)
        return values


for _tag, _pattern in (
    ("null", re.compile("(~|null|Null|NULL)?$")),
    ("bool", re.compile("(true|True|TRUE|false|False|FALSE)$")),
    ("int", _INTEGER),
    ("float", _FLOAT),
):
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", _pattern, None)


def read_yaml(path: Path, origin: str = "") -> Any:
    """Parse a YAML file; `origin` names it in messages. Raises ConfigError, also if it is empty."""
    origin = origin or str(path)
    value = parse_yaml(read_text(path, origin), origin)
    if value is None:
        raise ConfigError(f"{origin}: the file is empty")
    return value


def parse_yaml(text: str, origin: str) -> Any:
    """Parse YAML; `origin` names its file in messages. Raises ConfigError."""
    try:
        return yaml.load(text, Loader=_Loader)
    except (yaml.YAMLError, ValueError, LookupError, AttributeError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        line = f", line {mark.line + 1}" if mark else ""
        reason = getattr(error, "problem", None) or getattr(error, "reason", None)
        if not reason:  # a value, which PyYAML does not check
            reason = f"a value cannot be read ({first_line(error)})"
        raise ConfigError(f"{origin}{line}: {reason}") from None


def read_text(path: Path, origin: str) -> str:
    """A file's text as UTF-8. Raises ConfigError if it cannot be read."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise ConfigError(f"{origin}: {(error.strerror or str(error)).lower()}") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{origin}: not UTF-8 text (byte {error.start + 1})") from None


def load(path: Path, kind: type[T], origin: str = "") -> T:
    """Read a YAML file as a value of `kind`. Raises ConfigError with all its errors."""
    return convert(read_yaml(path, origin), kind, origin or str(path))


def convert(value: Any, kind: type[T], origin: Origin) -> T:
    """`value` as a `kind`. Raises ConfigError with all its errors; `origin` names the file."""
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError:
        problems = Problems(origin)
        problems.check_type("", value, kind)
        raise_all(problems)
        raise


def copy_fields(kind: type[AnyRow], whole: msgspec.Struct, /, **others: Any) -> AnyRow:
    """A `kind` with the values `others`; other fields have those of `whole` by the same names."""
    names = set(kind.__struct_fields__) & set(whole.__struct_fields__)
    return kind(**{name: getattr(whole, name) for name in names} | others)


def merged(base: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """`base` overridden by the keys of `changes`, also in mappings within mappings."""
    result = base | changes
    for key, value in changes.items():
        if isinstance(value, dict) and isinstance(base.get(key), dict):
            result[key] = merged(base[key], value)
    return result


def read_rows(path: Path, kind: type[AnyRow], origin: str = "") -> list[AnyRow]:
    """Read a CSV file, `origin` in messages, as rows of `kind` with unique ids; an empty field
    takes its default. Raises ConfigError with line and column of each error."""
    origin = origin or str(path)
    reader = csv.reader(io.StringIO(read_text(path, origin)))
    try:
        lines = [(reader.line_num, fields) for fields in reader if fields]
    except csv.Error as error:
        raise ConfigError(f"{origin}, line {reader.line_num}: {error}") from None
    if not lines:
        raise ConfigError(f"{origin}: the file is empty")
    header = lines[0][1]
    problems = Problems(f"{origin}, line 1")
    columns = msgspec.structs.fields(kind)
    problems.check_names("column", header, [column.name for column in columns], "columns")
    missing = [column.name for column in columns if column.required and column.name not in header]
    if missing:
        problems.add("", f"columns missing: {', '.join(missing)}")
    raise_all(problems)
    by_type: dict[Any, Callable[[str], Any]] = {"string": str, "object": parse_levels}
    types = msgspec.json.schema(kind)["$defs"][kind.__name__]["properties"]
    readers = {name: by_type.get(types[name].get("type"), parse_level) for name in header}
    rows: list[AnyRow] = []
    errors: list[str] = []
    line_of: dict[str, int] = {}  # by id
    for line, fields in lines[1:]:
        problems = Problems(f"{origin}, line {line}")
        values = _values(problems, fields, readers)
        if not problems and problems.check_type("", values, kind):
            rows.append(msgspec.convert(values, kind))
            row_id = values["id"]
            if row_id in line_of:
                problems.add("id", f"{row_id!r} occurs in line {line_of[row_id]} already")
            line_of[row_id] = line
        errors += problems
    raise_all(errors)
    return rows


def _values(
    problems: Problems, fields: list[str], readers: Mapping[str, Callable[[str], Any]]
) -> dict[str, Any]:
    """A line's values by column; `readers` has the function that reads a column's values."""
    if len(fields) != len(readers):
        hint = " (a text with a comma needs quotes)" if len(fields) > len(readers) else ""
        problems.add("", f"{len(fields)} fields, but the header has {len(readers)}{hint}")
        return {}
    values: dict[str, Any] = {}
    for (name, read), text in zip(readers.items(), map(str.strip, fields), strict=True):
        try:
            if text or name == "levels":  # which may be empty, but is required
                values[name] = read(text)
        except ValueError as error:
            problems.add(name, str(error))
    return values
