"""The base of every configuration type: immutable, and closed to unknown keys."""

from typing import Annotated, dataclass_transform

import msgspec

Level = bool | int | float | str
"""A value that a factor takes."""


def level_text(level: Level) -> str:
    """A level as YAML writes it."""
    return str(level).lower() if isinstance(level, bool) else str(level)


BETWEEN_LEVELS = "~"
"""What stands between the levels in a cell's name. No name may have it, no shell takes it for its
own, and Snakemake can hand it to jobs of a cluster, which it cannot do with a comma."""

NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9_.+-]*$(?!\n)"
Name = Annotated[str, msgspec.Meta(pattern=NAME_PATTERN)]
"""A word that can stand in a path: letters, digits and _ . + -"""

Count = Annotated[int, msgspec.Meta(ge=1)]
Natural = Annotated[int, msgspec.Meta(ge=0)]
Positive = Annotated[float, msgspec.Meta(gt=0)]
Share = Annotated[float, msgspec.Meta(ge=0, le=1)]


@dataclass_transform(frozen_default=True, field_specifiers=(msgspec.field,))
class Strict(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A configuration object: an unknown key or a value of the wrong type is an error."""
