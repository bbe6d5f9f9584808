"""Captions of the report's items, for the article: the same files that Snakemake shows."""

from collections.abc import Iterable
from pathlib import Path

from docutils.core import publish_parts

from feedrate.report.markup import Markup

_SAFE = {
    "raw_enabled": False,
    "file_insertion_enabled": False,
    "_disable_config": True,
    "report_level": 5,
}


def read_captions(files: Iterable[Path]) -> dict[str, Markup]:
    """The captions by name (the file's, without .rst), as HTML."""
    return {file.stem: to_html(file.read_text(encoding="utf-8")) for file in files}


def to_html(source: str) -> Markup:
    """reStructuredText as HTML; directives that read files or pass HTML through are off."""
    parts = publish_parts(source, writer="html", settings_overrides=_SAFE)
    return Markup(parts["body"].strip())
