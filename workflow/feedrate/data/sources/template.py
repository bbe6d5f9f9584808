"""The template of an image's path: `cartoons/{contest}.jpg`, a column's name in braces."""

import re
from collections.abc import Mapping
from typing import Any

from feedrate.data.rows import plain_text

TABLE = "table"
"""`{table}` stands for the name of the row's table without its ending, unless a column has it."""

_BRACES = re.compile(r"\{([^{}]*)\}")


def names(template: str) -> list[str]:
    """The columns that a template asks for, each once."""
    return list(dict.fromkeys(_BRACES.findall(template)))


def fill(template: str, row: Mapping[str, Any], table: str) -> str:
    """The template with the row's values in place of the braces; values are never templates."""
    values = {TABLE: table, **row}
    return _BRACES.sub(lambda match: plain_text(values.get(match[1])), template)
