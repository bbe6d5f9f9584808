"""HTML and sentences from the templates in report/templates/."""

import math
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from feedrate.report import text
from feedrate.report.rows import CellOf

FOLDER = Path(__file__).resolve().parents[3] / "report"
"""The templates and their static files, beside the package: not those of the folder that a report
is about."""


FEW = 4
"""Settings or claims that a sentence names; more are counted."""


class Statement(NamedTuple):
    """A sentence, and the cells or runs whose records it rests on."""

    text: str
    cells: Sequence[CellOf] = ()
    device: str = ""
    """The label of the device that it is about; empty: of the study."""


def render(template: str, **facts: Any) -> str:
    """A page that needs no other file; every text in `facts` is escaped."""
    return _environment(escape=True).get_template(template).render(facts)


def sentence(macro: str, /, **facts: Any) -> str:
    """The sentences of a macro in sentences.j2, as plain text."""
    template = _environment(escape=False).get_template("sentences.j2")
    return " ".join(getattr(template.module, macro)(**facts).split())


@cache
def _environment(*, escape: bool) -> Environment:
    environment = Environment(
        loader=FileSystemLoader(FOLDER / "templates"),
        autoescape=escape,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )
    environment.globals |= {"static": _static, "anchors": anchors}
    environment.filters |= {
        "listed": text.listed,
        "counted": text.counted,
        "capital": lambda words: words[:1].upper() + words[1:],
        "seconds": text.seconds,
        "number": text.number,
        "ratio": text.ratio,
        "share": text.share,
        "down": lambda value: f"{text.fixed(100 * value, 0, math.floor)}%",
        "up": lambda value: f"{text.fixed(100 * value, 0, math.ceil)}%",
    }
    return environment


def _static(name: str) -> str:
    return (FOLDER / "static" / name).read_text(encoding="utf-8")


def anchor(study: str, device: str, cell: str, repeat: int | None = None) -> str:
    """The id of a run, or of a cell, in the page's table of runs."""
    return "/".join([study, device, cell, *([f"rep{repeat}"] if repeat else [])])


def anchors(cells: Iterable[CellOf | None]) -> list[str]:
    """The anchors of the records of cells or runs, each once, as addresses hold them; a cell that
    its device does not support has none."""
    supported = [cell for cell in cells if cell and getattr(cell, "status", "") != "unsupported"]
    return list(dict.fromkeys(address(_anchor_of(cell)) for cell in supported))


def address(anchor: str) -> str:
    """An anchor as addresses hold it."""
    return quote(anchor, safe="/=~,")


def _anchor_of(cell: CellOf) -> str:
    runs = getattr(cell, "measured_as", "") or cell.cell
    return anchor(cell.study, cell.device, runs, getattr(cell, "repeat", None))
