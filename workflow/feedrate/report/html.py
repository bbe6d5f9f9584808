"""HTML from the templates in report/templates/; they escape every text that they are given."""

from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from feedrate.report.rows import CellOf

FOLDER = Path(__file__).resolve().parents[3] / "report"
"""The templates and their static files, beside the package: not those of the folder that a report
is about."""


def render(template: str, **facts: Any) -> str:
    """A page that needs no other file."""
    return _environment().get_template(template).render(facts)


@cache
def _environment() -> Environment:
    made = Environment(
        loader=FileSystemLoader(FOLDER / "templates"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )
    made.globals |= {"static": _static, "anchors": anchors}
    return made


def _static(name: str) -> str:
    return (FOLDER / "static" / name).read_text(encoding="utf-8")


def anchor(study: str, device: str, cell: str, repeat: int | None = None) -> str:
    """The id of a run, or of a cell, in the overview's table of runs."""
    return "/".join([study, device, cell, *([f"rep{repeat}"] if repeat else [])])


def anchors(cells: Iterable[CellOf | None]) -> list[str]:
    """The anchors of the records of cells or runs, each once, as addresses hold them."""
    return list(dict.fromkeys(address(_anchor_of(cell)) for cell in cells if cell))


def address(anchor: str) -> str:
    """An anchor as addresses hold it."""
    return quote(anchor, safe="/=~,")


def _anchor_of(cell: CellOf) -> str:
    runs = getattr(cell, "measured_as", "") or cell.cell
    return anchor(cell.study, cell.device, runs, getattr(cell, "repeat", None))
