"""Tokens of the environment never reach a log, an event or a message."""

import os
import re
from collections.abc import Mapping

from feedrate.config.secret import SECRET_NAME

MASK = "***"
_SHORTEST = 8
"""A shorter value is no token; masking it would blot out ordinary words."""


class Masker:
    """Replaces the values of secret environment variables in text."""

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        values = {
            value
            for name, value in environment.items()
            if SECRET_NAME.search(name) and len(value) >= _SHORTEST and not os.path.exists(value)  # noqa: PTH110
        }
        longest_first = sorted(values, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, longest_first))) if values else None

    def __call__(self, text: str) -> str:
        """`text` without secrets."""
        return self._pattern.sub(MASK, text) if self._pattern else text
