"""Figures as data: panels of series with labels and intervals; `drawing.py` draws them all. Colours
and sizes are here only."""

import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from feedrate.config.values import level_text
from feedrate.core import plugins
from feedrate.report.rows import CellOf, varying_factors
from feedrate.report.study import Part, StudyResults

WIDTH_IN = 5.1
"""The width of every figure: a column of a page, and readable on a phone."""
FONT_PT = 9.5
"""The size of every text; on a phone of 390 px these are 9.2 px."""
ROW_IN, LINE_IN = 0.27, 0.17
"""The heights of a row with a bar, and of a line of text."""
NAME_LETTERS = 22
"""The letters in a line of a name."""
PANELS = 4
"""Panels for the settings of a study, where there could be many."""
TITLE_LETTERS, AXIS_LETTERS = 46, 34
"""The letters that fit above a panel of the whole width, and side by side on its axis."""

BLACK, GREY, LIGHT = "#1a1a1a", "#595959", "#d4d4d4"
BLUE, ORANGE, GREEN, RED = "#0072B2", "#E69F00", "#009E73", "#D55E00"
SKY, PURPLE = "#56B4E9", "#CC79A7"
"""The palette of Okabe and Ito (2008), which readers with any colour vision can distinguish."""


class Look(NamedTuple):
    """How a series is drawn. Markers, dashes and hatches show what its colour shows."""

    color: str
    """Of a line and its markers, or of a bar's outline."""
    marker: str = ""
    """One of `drawing.MARKERS`; empty: none."""
    dashes: tuple[float, ...] = ()
    """Lengths that are drawn, left out, drawn, …, in widths of the line; empty: all is drawn."""
    fill: str = ""
    """Of a bar or a marker; empty: the colour."""
    width_pt: float = 1.5
    size_pt: float = 5.5
    """Of a marker."""
    line: bool = True
    """Whether a line connects the markers."""
    hatched: bool = False
    every: tuple[int, int] | None = None
    """The first place with a marker, and the places from one to the next; None: all have one."""


CURVES = (
    Look(BLUE, "circle"),
    Look(RED, "square", (5, 1.5)),
    Look(GREEN, "triangle", (1, 1)),
    Look(PURPLE, "diamond", (4, 1, 1, 1)),
    Look(ORANGE, "triangle_down", (7, 2)),
    Look(BLACK, "thick_cross", (2, 2)),
)
CHOSEN = Look(BLUE, fill=SKY, width_pt=1.2)
PLAIN = Look(GREY, fill=LIGHT, width_pt=0.6)
PROVISIONAL = Look(GREY, fill="white", width_pt=0.6, hatched=True)
WAITING = Look(BLACK, fill=ORANGE, width_pt=0.4, hatched=True)
TICK = Look(BLACK, "tick", size_pt=12, line=False)
"""A mark across a bar or a row."""
CROSS = Look(RED, "cross", size_pt=7, line=False)
BEFORE = Look(GREY, "circle", fill="white", line=False)
AFTER = Look(BLUE, "diamond", line=False)


class Mark(NamedTuple):
    """A value at a place, with its interval; None is a gap. A bar begins at `start`."""

    place: float
    value: float | None
    low: float | None = None
    high: float | None = None
    start: float = 0.0


class Series(NamedTuple):
    """Marks of one look, with a name for the key: a line, bars along rows, or an area."""

    marks: Sequence[Mark]
    look: Look
    name: str = ""
    bars: bool = False


class Row(NamedTuple):
    """A row of a panel: its name to the left, and words to the right."""

    name: str
    words: str = ""
    strong: bool = False


@dataclass
class Panel:
    """Series along rows from top to bottom; without rows, along places from left to right."""

    series: Sequence[Series]
    title: str = ""
    rows: Sequence[Row] = ()
    heads: tuple[str, str] = ("", "")
    """Above the names of the rows, and above their words."""
    x_label: str = ""
    y_label: str = ""
    x_names: Sequence[str] = ()
    """Names of the places 0, 1, … on the horizontal axis; without any it is a scale."""
    x_limits: tuple[float | None, float | None] = (None, None)
    y_limits: tuple[float | None, float | None] = (None, None)
    log: bool = False
    """Whether the vertical scale is logarithmic."""
    rule: tuple[float, str] | None = None
    """A value that a dashed line marks, and what is written above the line."""
    span: tuple[float, float, str] | None = None
    """Places that are shaded, with a name for the key."""
    height_in: float = 0.0

    def __post_init__(self) -> None:
        """A panel of rows is as high as these need, and a title of several lines is added."""
        lines = self.title.count("\n")
        if self.rows:
            lines += 4 + bool(self.title)
            lines += sum(row.name.count("\n") + row.words.count("\n") for row in self.rows)
        self.height_in += ROW_IN * len(self.rows) + LINE_IN * lines


@dataclass
class Picture:
    """Panels row by row. Its title says what it shows; empty: the figure's title."""

    panels: Sequence[Panel]
    title: str = ""
    columns: int = 1
    """The panels in a row."""
    share_y: bool = False
    """Whether all panels have one vertical scale."""
    key_columns: int = 3


class Figure(NamedTuple):
    """A figure of every study that has something to draw."""

    name: str
    title: str
    part: Part
    place: int
    """Its place among the figures of all parts."""
    draw: Callable[[StudyResults], Picture | None]


def all_figures() -> list[Figure]:
    """The figures in the order of the page: those of the project and of other distributions."""
    package = "feedrate.report.figures"
    files = [plugins.load(package, name) for name in plugins.names(package)]
    figures = [figure for file in files for figure in file.FIGURES]
    return sorted(figures, key=lambda figure: figure.place)


def end(series: Sequence[Series]) -> float:
    """The end of a scale from 0 for all marks and their intervals. An interval that is
    several times as long as the largest value leaves it: it would flatten the others."""
    marks = [mark for line in series for mark in line.marks]
    largest = max((mark.value or 0.0 for mark in marks), default=0.0)
    highest = max((mark.high or 0.0 for mark in marks), default=0.0)
    return 1.05 * max(largest, min(highest, 3 * largest))


def wrapped(name: str) -> str:
    """A name in lines."""
    return textwrap.fill(name, NAME_LETTERS)


def names(study: StudyResults, cells: Sequence[CellOf]) -> tuple[str, list[str]]:
    """The names of settings beside each other, and the heading above them: the levels of the
    factors in which they differ, and these factors."""
    factors = varying_factors(cells) or [study.along]
    levels = [", ".join(level_text(cell.levels[name]) for name in factors) for cell in cells]
    return wrapped(", ".join(map(study.factor_label, factors))), list(map(wrapped, levels))


def title(study: StudyResults, device: str, *more: str, letters: int = TITLE_LETTERS) -> str:
    """The title of a panel: the device, where there are several, and what else it is about."""
    own = [study.label(device)] if len(study.devices) > 1 else []
    return textwrap.fill(", ".join([*own, *more]), letters)
