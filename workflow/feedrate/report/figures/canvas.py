"""What all figures share: colours with a mark beside each, type, and bytes that repeat."""

import io
import math
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from feedrate.report.grid import Line

WIDTH_IN = 6.0
"""Width of every figure: a page's column, and readable when a phone shows it whole."""

BLACK, GREY, LIGHT = "#1a1a1a", "#6b6b6b", "#d9d9d9"
BLUE, ORANGE, GREEN, RED = "#0072B2", "#E69F00", "#009E73", "#D55E00"
SKY, PURPLE = "#56B4E9", "#CC79A7"
"""The palette of Okabe and Ito (2008), told apart by readers with any colour vision."""


@dataclass(frozen=True)
class Style:
    """A colour that never stands alone: with it come a marker, a dash pattern and a hatch."""

    color: str
    marker: str
    dash: Any
    hatch: str


STYLES = (
    Style(BLUE, "o", "solid", ""),
    Style(RED, "s", (0, (5, 1.5)), "///"),
    Style(GREEN, "^", (0, (1, 1)), "..."),
    Style(PURPLE, "D", (0, (4, 1, 1, 1)), "xxx"),
    Style(ORANGE, "v", (0, (7, 2)), "\\\\\\"),
    Style(SKY, "P", (0, (3, 1, 1, 1, 1, 1)), "++"),
    Style(BLACK, "X", (0, (2, 2)), "oo"),
)

FEW = 12
"""So many names or numbers fit side by side."""

LABEL_PX = 19
"""Height of a line of a label, in pixels of the drawing."""

PAPER = {"facecolor": "white", "edgecolor": "none", "pad": 1, "alpha": 0.85}
"""The box behind a number that may stand on a line."""

LEGEND: dict[str, Any] = {"loc": "outside lower left", "frameon": False}

_RC = {
    "font.family": "DejaVu Sans",
    "font.size": 10,
    "xtick.labelsize": 9.5,
    "ytick.labelsize": 9.5,
    "axes.titlesize": 11,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.labelsize": 10,
    "axes.labelcolor": BLACK,
    "axes.edgecolor": GREY,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "grid.color": "#e6e6e6",
    "grid.linewidth": 0.8,
    "xtick.color": BLACK,
    "ytick.color": BLACK,
    "text.color": BLACK,
    "figure.facecolor": "white",
    "hatch.linewidth": 0.6,
    "svg.hashsalt": "feedrate",
    "svg.fonttype": "path",
    "text.parse_math": False,
}


def style(index: int) -> Style:
    """The style of the n-th series; after seven they repeat, and direct labels tell."""
    return STYLES[index % len(STYLES)]


def new(height_in: float, rows: int = 1, **options: Any) -> tuple[Figure, list[Axes]]:
    """A figure of `rows` panels, one below the other."""
    figure = Figure(figsize=(WIDTH_IN, height_in), layout="constrained")
    axes = figure.subplots(rows, 1, squeeze=False, **options)
    return figure, list(axes[:, 0])


@contextmanager
def theme() -> Iterator[None]:
    """Draw and save inside this: our type and lines, whatever a user's matplotlibrc says."""
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(_RC)
        yield


def to_svg(figure: Figure, title: str) -> str:
    """The figure as SVG: text as outlines, no date, the same bytes for the same drawing."""
    stream = io.StringIO()
    metadata = {"Title": title, "Date": None, "Creator": None}
    figure.savefig(stream, format="svg", metadata=metadata)
    return stream.getvalue()


def statement(text: str) -> Figure:
    """A plain sentence where there is nothing to draw."""
    figure = Figure(figsize=(WIDTH_IN, 1.1))
    figure.text(0.02, 0.5, wrap(text, 80), va="center", fontsize=11, color=GREY)
    return figure


def note(figure: Figure, lines: Sequence[str]) -> None:
    """Small remarks below the whole figure."""
    text = "\n".join(wrap(line, 100) for line in lines if line)
    if text:
        figure.supxlabel(text, x=0.01, ha="left", fontsize=8.5, color=GREY)


def wrap(text: str, width: int) -> str:
    """`text` broken into lines of at most `width` characters."""
    return "\n".join(textwrap.wrap(text, width)) or text


def level_axis(axes: Axes, ticks: Sequence[str]) -> None:
    """One place per level, evenly spaced: levels such as 0, 1, 2, 16 are names, not a scale.

    Of many levels only some are named.
    """
    every = math.ceil(len(ticks) / FEW)
    axes.set_xticks(range(0, len(ticks), every), ticks[::every])
    axes.set_xlim(min(-0.4, len(ticks) / 2 - 1.8), max(len(ticks) - 0.6, len(ticks) / 2 + 0.8))
    axes.tick_params(axis="x", length=0)


def path(line: Line) -> tuple[list[int], list[float]]:
    """Places and values of a line; it breaks at a cell that was tried and has no number."""
    points = [
        (place, math.nan if spot.value is None else spot.value)
        for place, spot in enumerate(line.spots)
        if spot.value is not None or spot.broke
    ]
    return [place for place, _ in points], [value for _, value in points]


def whiskers(axes: Axes, x: float, low: float | None, high: float | None, color: str) -> None:
    """An interval as an error bar."""
    if low is not None and high is not None:
        axes.vlines(x, low, high, color=color, linewidth=1.6, zorder=4)
        for end in (low, high):
            axes.plot([x - 0.05, x + 0.05], [end, end], color=color, linewidth=1.6, zorder=4)


def dots(axes: Axes, x: float, values: Sequence[float], color: str) -> None:
    """Every repeat as a small dot, a little to the side of the median."""
    places = [x + 0.09 + 0.035 * (index % 3) for index in range(len(values))]
    axes.plot(places, values, ".", markersize=4.5, color=color, alpha=0.75, zorder=3)


def end_labels(axes: Axes, x: float, labels: Sequence[tuple[float, str, str]]) -> None:
    """Names of lines at their right ends, pushed apart where they would touch.

    `labels` are (y, text, colour); call it last, when the limits of the axes stand.
    """
    low, high = axes.get_ylim()
    line = (high - low) * LABEL_PX / axes.get_window_extent().height
    lower_edge = -float("inf")
    for y, text, color in sorted(labels):
        half = line * (1 + text.count("\n")) / 2
        place = max(y, lower_edge + half)
        lower_edge = place + half
        axes.annotate(
            text,
            (x, place),
            xytext=(8, 0),
            textcoords="offset points",
            va="center",
            color=color,
            fontsize=9.5,
            annotation_clip=False,
        )
