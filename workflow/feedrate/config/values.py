"""Names, counts and levels: the values that configuration files hold, and levels as text."""

import re
from collections.abc import Mapping
from typing import Annotated, dataclass_transform

import msgspec

NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9_.+-]*$(?!\n)"
Name = Annotated[str, msgspec.Meta(pattern=NAME_PATTERN)]
"""A word that can be part of a path: letters, digits and _ . + -"""

Count = Annotated[int, msgspec.Meta(ge=1)]
Natural = Annotated[int, msgspec.Meta(ge=0)]
Positive = Annotated[float, msgspec.Meta(gt=0)]
Share = Annotated[float, msgspec.Meta(ge=0, le=1)]

Level = bool | int | float | str
"""A value that a factor takes."""

BETWEEN_LEVELS = "~"
"""Separates the levels in a cell's name. Names cannot contain it, shells do not expand it within a
word, and Snakemake can pass it to cluster jobs (it cannot pass a comma)."""

_INTEGER = re.compile(r"[-+]?(0|[1-9][0-9]*)")
_FLOAT = re.compile(r"[-+]?((\.[0-9]+|[0-9]+\.[0-9]*)([eE][-+]?[0-9]+)?|[0-9]+[eE][-+]?[0-9]+)")

PLAIN_VALUES = {
    "null": (r"(~|null|Null|NULL)?$", ["~", "n", "N", ""]),
    "bool": (r"(true|True|TRUE|false|False|FALSE)$", list("tTfF")),
    "int": (f"({_INTEGER.pattern})$", list("-+0123456789")),
    "float": (f"({_FLOAT.pattern})$", list("-+.0123456789")),
}
"""By YAML type, the pattern of plain values that are read as it, and their first characters."""


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
    if _INTEGER.fullmatch(text):
        return int(text)
    return float(text) if _FLOAT.fullmatch(text) else text


def parse_levels(text: str, separator: str = ";") -> dict[str, Level]:
    """Read `workers=2;decode=host` as {"workers": 2, "decode": "host"}.

    Raises ValueError with the reason where a part is not factor=value or names a factor again.
    """
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
    """`workers=2~decode=host`: the cell's name in paths and columns."""
    return BETWEEN_LEVELS.join(f"{factor}={level_text(level)}" for factor, level in levels.items())
