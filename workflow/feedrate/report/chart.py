"""Figures as data: panels with series, labels and intervals; `drawing.py` draws them all."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from feedrate.report import text
from feedrate.report.context import PageSettings
from feedrate.report.lines import Line
from feedrate.report.rows import CellRow, RunRow

WIDTH_IN = 6.0
"""The width of every figure: a column of a page, and readable on a phone."""

BLACK, GREY, LIGHT = "#1a1a1a", "#6b6b6b", "#d9d9d9"
BLUE, ORANGE, GREEN, RED = "#0072B2", "#E69F00", "#009E73", "#D55E00"
SKY, PURPLE = "#56B4E9", "#CC79A7"
"""The palette of Okabe and Ito (2008), which readers with any colour vision can distinguish."""

Cells = list[CellRow]
Look = Mapping[str, Any]
"""Options of matplotlib: a colour with a marker and a dash pattern or a hatch, so that no series
depends on its colour."""

STYLES: tuple[Look, ...] = (
    {"color": BLUE, "marker": "o", "linestyle": "solid"},
    {"color": RED, "marker": "s", "linestyle": (0, (5, 1.5))},
    {"color": GREEN, "marker": "^", "linestyle": (0, (1, 1))},
    {"color": PURPLE, "marker": "D", "linestyle": (0, (4, 1, 1, 1))},
    {"color": ORANGE, "marker": "v", "linestyle": (0, (7, 2))},
    {"color": SKY, "marker": "P", "linestyle": (0, (3, 1, 1, 1, 1, 1))},
    {"color": BLACK, "marker": "X", "linestyle": (0, (2, 2))},
)
TICK: Look = {"marker": "|", "linestyle": "", "color": BLACK, "markersize": 13, "mew": 2}
"""A mark across a bar."""
WAITING: Look = {"facecolor": ORANGE, "edgecolor": "white", "hatch": "////", "linewidth": 0}
"""The look of time spent waiting for data."""
CROSS: Look = {"marker": "x", "linestyle": "", "markersize": 8, "markeredgewidth": 2}
"""A cell that failed."""
PAPER = {"facecolor": "white", "edgecolor": "none", "pad": 1, "alpha": 0.85}
"""The box behind a number that may cross a line."""

FEW = 12
"""The number of names or numbers that fit side by side."""
LINE_IN, LEGEND_LINE_IN, BAR_IN = 0.16, 0.22, 0.42
"""The heights of a line of a label, of a line of the legend, and of a horizontal bar with the space
around it."""


class Mark(NamedTuple):
    """A value at a place, with its interval; None is a gap. A bar begins at `start`."""

    place: float
    value: float | None
    low: float | None = None
    high: float | None = None
    start: float = 0.0
    words: str = ""  # to the right of it


class Series(NamedTuple):
    """Marks of one look, with a name for the key."""

    marks: Sequence[Mark]
    look: Look
    name: str = ""
    bars: bool = False


class Label(NamedTuple):
    """A text beside a value at a place, `offset` in points."""

    place: float
    value: float
    words: str
    offset: tuple[float, float] = (6, 0)
    look: Look = {}


class Tile(NamedTuple):
    """A field of a matrix, coloured by its value, with words and small words; or hatched."""

    value: float | None
    words: str
    small: str = ""


@dataclass
class Panel:
    """Series at places. Places are named levels from left to right, rows from top to bottom, or,
    without names, numbers such as steps; or a matrix of tiles by row."""

    series: Sequence[Series] = ()
    title: str = ""
    names: Sequence[str] = ()
    rows: bool = False
    place_label: str = ""
    value_label: str = ""
    limits: tuple[float | None, float | None] = (None, None)
    log: Literal["", "decades", "fine"] = ""
    rule: tuple[float, str] | None = None
    """A value that a line marks, with its name for the key."""
    span: tuple[float, float, str] | None = None
    """Places that are shaded, with a name for the key."""
    chosen: int | None = None
    """The place that is marked as the one to use."""
    labels: Sequence[Label] = ()
    tiles: Mapping[str, Sequence[Tile]] = field(default_factory=dict)
    key: bool = False
    """Whether the names of its series are beside it."""
    height_in: float = 2.0


@dataclass
class Picture:
    """Panels row by row; without any, the sentence that takes their place."""

    panels: Sequence[Panel] = ()
    sentence: str = ""
    notes: Sequence[str] = ()
    """Small remarks below the panels; empty ones are left out."""
    key_columns: int = 0
    """The columns of the key of all panels, 0 without one; it is above them if there are notes."""
    widths: Sequence[float] = (1,)
    """The relative widths of the panels in a row."""
    share: Literal["", "x", "y of columns"] = ""


def style(index: int, **changes: Any) -> Look:
    """The style of the n-th series; after seven they repeat."""
    return {**STYLES[index % len(STYLES)], **changes}


def marks(line: Line, aside: float = 0.0) -> list[Mark]:
    """The cells of a line that were tried, moved `aside` from the levels' places."""
    return [
        Mark(place + aside, point.value, point.low, point.high)
        for place, point in enumerate(line.points)
        if point.tried
    ]


def dots(line: Line, runs: Sequence[RunRow], color: str) -> Series:
    """The throughput of every valid run as a small dot next to its cell's median."""
    good = (run for run in runs if run.status == "ok" and run.samples_per_s)
    of_cell = text.grouped(good, lambda run: run.key)
    places = [
        Mark(place + 0.09 + 0.035 * (index % 3), run.samples_per_s)
        for place, point in enumerate(line.points)
        for index, run in enumerate(of_cell.get(point.row.key, ()) if point.row else ())
    ]
    look = {"marker": ".", "linestyle": "", "markersize": 4.5, "alpha": 0.75, "zorder": 3}
    return Series(places, {"color": color, **look})


def bar_panels(settings: PageSettings, cells: Sequence[CellRow]) -> Iterator[tuple[Panel, Cells]]:
    """A panel with room for a bar for each cell, for each device that has cells; and these."""
    groups = text.grouped(cells, lambda cell: cell.device)
    for device in (device for device in settings.measured if device in groups):
        label, height_in = settings.label(device), BAR_IN * len(groups[device]) + 0.9
        yield Panel(title=label, rows=True, height_in=height_in), groups[device]


def top(values: Sequence[float | None], room: float) -> float:
    """The end of an axis that begins at 0 and has some room above these values."""
    known = [value for value in values if value is not None and math.isfinite(value)]
    return room * max(known, default=1.0)
