"""Markdown made from text: every text is escaped, so that none can be markup."""

import html
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from feedrate.config.settings import RunSpec

_MARKS = re.compile(r"([\\`*_{}\[\]|~#])")


def plain(text: str) -> str:
    """A text on one line, with nothing in it that Markdown or HTML would take for its own."""
    return _MARKS.sub(r"\\\1", html.escape(" ".join(text.split()), quote=False))


def code(text: str) -> str:
    """A name or a digest, as code; nothing where there is none."""
    words = " ".join(text.split()).replace("`", "'").replace("|", r"\|")
    return f"`{words}`" if words else "unknown"


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of texts that are escaped already."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def bullets(said: Mapping[str, str]) -> str:
    """A list of what is known, each after its name."""
    return "\n".join(f"- {name}: {value}" for name, value in said.items())


def fenced(language: str, lines: Iterable[str]) -> str:
    """A block of code; a fence in it could end it, and becomes none."""
    inside = "\n".join(lines).replace("```", "'''")
    return f"```{language}\n{inside}\n```"


def settings_table(spec: RunSpec) -> str:
    """Every setting that is not null, as the configuration names it; of local weights the folder's
    name alone."""
    settings = msgspec.to_builtins(spec.settings)
    parts: dict[str, Any] = {name: settings[name] for name in ("model", "loader", "train")}
    if spec.kind == "hpu":
        parts["hpu"] = settings["hpu"]
    if spec.settings.model.checkpoint and Path(spec.settings.model.checkpoint).is_absolute():
        parts["model"]["checkpoint"] = Path(spec.settings.model.checkpoint).name
    parts["protocol"] = msgspec.to_builtins(spec.protocol)
    rows = [
        [code(f"{part}.{key}"), code(str(value))]
        for part, values in parts.items()
        for key, value in values.items()
        if value is not None
    ]
    return table(["Setting", "Value"], [*rows, [code("seed"), code(str(spec.seed))]])
