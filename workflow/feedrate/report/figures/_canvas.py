"""The base of all figures: styles, axes, labels, and SVG with reproducible bytes."""

import io
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes as Axes  # figures take both from here
from matplotlib.figure import Figure as Figure
from matplotlib.font_manager import FontProperties
from matplotlib.textpath import text_to_path

from feedrate.report import text
from feedrate.report.context import PageSettings
from feedrate.report.lines import Line
from feedrate.report.rows import CellRow, Inputs, RunRow

WIDTH_IN = 6.0
"""The width of every figure: a column of a page, and readable on a phone."""

BLACK, GREY, LIGHT = "#1a1a1a", "#6b6b6b", "#d9d9d9"
BLUE, ORANGE, GREEN, RED = "#0072B2", "#E69F00", "#009E73", "#D55E00"
SKY, PURPLE = "#56B4E9", "#CC79A7"
"""The palette of Okabe and Ito (2008), which readers with any colour vision can distinguish."""


Style = dict[str, Any]
"""Options of `plot`: a colour with a marker and a dash pattern, so no series depends on colour."""

STYLES: tuple[Style, ...] = (
    {"color": BLUE, "marker": "o", "linestyle": "solid"},
    {"color": RED, "marker": "s", "linestyle": (0, (5, 1.5))},
    {"color": GREEN, "marker": "^", "linestyle": (0, (1, 1))},
    {"color": PURPLE, "marker": "D", "linestyle": (0, (4, 1, 1, 1))},
    {"color": ORANGE, "marker": "v", "linestyle": (0, (7, 2))},
    {"color": SKY, "marker": "P", "linestyle": (0, (3, 1, 1, 1, 1, 1))},
    {"color": BLACK, "marker": "X", "linestyle": (0, (2, 2))},
)

FEW = 12
"""The number of names or numbers that fit side by side."""

LABEL_PX, LABEL_IN = 19, 0.16
"""The height of a line of a label, in pixels of the drawing and in inches of the picture."""

PAPER = {"facecolor": "white", "edgecolor": "none", "pad": 1, "alpha": 0.85}
"""The box behind a number that may cross a line."""

LEGEND: dict[str, Any] = {"loc": "outside lower left", "frameon": False}
LEGEND_LINE_IN, BAR_IN = 0.22, 0.42
"""The heights of a line of the legend, and of a horizontal bar with the space around it."""

TICK: dict[str, Any] = {"marker": "|", "linestyle": "", "color": BLACK, "markersize": 13}
"""A mark across a bar."""

WAITING: dict[str, Any] = {"facecolor": ORANGE, "edgecolor": "white", "hatch": "////"}
"""The look of time spent waiting for data."""

BAR: dict[str, Any] = {"fmt": "none", "capsize": 3, "elinewidth": 1.6, "capthick": 1.6, "zorder": 4}
"""An interval as an error bar: options of `errorbar`, without a mark."""

_RC = {
    "font.family": "DejaVu Sans",
    **dict.fromkeys(("xtick.labelsize", "ytick.labelsize"), 9.5),
    "axes.titlesize": 11,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    **dict.fromkeys(("axes.labelcolor", "xtick.color", "ytick.color", "text.color"), BLACK),
    "axes.edgecolor": GREY,
    **dict.fromkeys(("axes.spines.top", "axes.spines.right"), False),
    "axes.axisbelow": True,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "grid.color": "#e6e6e6",
    "hatch.linewidth": 0.6,
    "svg.hashsalt": "feedrate",
    "svg.fonttype": "none",
    "text.parse_math": False,
}


def style(index: int) -> Style:
    """The style of the n-th series; after seven they repeat."""
    return STYLES[index % len(STYLES)]


def new(
    height_in: float, rows: int = 1, columns: int = 1, **options: Any
) -> tuple[Figure, list[Axes]]:
    """A figure with its panels, row by row."""
    figure = Figure(figsize=(WIDTH_IN, height_in), layout="constrained")
    return figure, list(figure.subplots(rows, columns, squeeze=False, **options).flat)


def bar_panels(
    settings: PageSettings, cells: Sequence[CellRow], below_in: float
) -> tuple[Figure, list[tuple[Axes, list[CellRow]]]]:
    """A figure with a panel for each device that has cells, and these: room for a horizontal bar
    for each. `below_in` is for the legend."""
    of_device = [[c for c in cells if c.device == device] for device in settings.measured]
    groups = [group for group in of_device if group]
    heights = [BAR_IN * len(group) + 0.9 for group in groups]
    figure, all_axes = new(sum(heights) + below_in, len(groups), height_ratios=heights)
    panels = [*zip(all_axes, groups, strict=True)]
    for axes, group in panels:
        axes.set_title(settings.label(group[0].device))
    return figure, panels


FONTS = "'DejaVu Sans', Verdana, sans-serif"
"""Texts are laid out with the first font. The second is as wide, and others are narrower."""


@contextmanager
def theme() -> Iterator[None]:
    """Draw and save inside this context: our style, whatever a user's matplotlibrc says."""
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(_RC)
        yield


Draw = Callable[[PageSettings, Inputs], Figure]


def as_svg(draw: Draw, settings: PageSettings, inputs: Inputs) -> str:
    """A figure as SVG, drawn by the `render` of its kind, with text as text and without a date, so
    that equal drawings have equal bytes."""
    stream = io.StringIO()
    metadata = {"Title": settings.title, "Date": None, "Creator": None}
    with theme():
        figure = draw(settings, inputs)
        figure.savefig(stream, format="svg", metadata=metadata)
    return stream.getvalue().replace("'DejaVu Sans'", FONTS)


def statement(sentence: str) -> Figure:
    """A sentence in place of a figure without data."""
    figure = Figure(figsize=(WIDTH_IN, 1.1))
    figure.text(0.02, 0.5, fit(sentence, figure, 11), va="center", fontsize=11, color=GREY)
    return figure


def note(figure: Figure, lines: Sequence[str]) -> None:
    """Small remarks below the figure, which grows by their lines; empty ones are left out."""
    words = [line for remark in lines if remark for line in fit(remark, figure, 8.5).split("\n")]
    if words:
        figure.set_figheight(figure.get_figheight() + LABEL_IN * len(words))
        figure.supxlabel("\n".join(words), x=0.02, ha="left", fontsize=8.5, color=GREY)


def fit(words: str, figure: Figure, size_pt: float) -> str:
    """`words` broken into lines that are not wider than the figure, for a font of this size. A word
    that is wider than a line is broken too."""
    room_pt = 0.92 * 72 * figure.get_figwidth()  # programs that move letters to pixels need more
    font = FontProperties(size=size_pt)

    def fits(line: str) -> bool:
        return text_to_path.get_text_width_height_descent(line, font, False)[0] <= room_pt

    lines = [""]
    for word in words.split():
        longer = f"{lines[-1]} {word}".lstrip()
        if lines[-1] and not fits(longer):
            lines.append("")
            longer = word
        while not fits(longer):
            part = next(n for n in range(len(longer) - 1, 0, -1) if n == 1 or fits(longer[:n]))
            lines[-1:], longer = [longer[:part], ""], longer[part:]
        lines[-1] = longer
    return "\n".join(lines)


def level_ticks(axes: Axes, names: Sequence[str]) -> None:
    """A label at the place of each level; with many levels only some are labelled."""
    every = math.ceil(len(names) / FEW)
    axes.set_xticks(range(0, len(names), every), names[::every])
    axes.tick_params(axis="x", length=0)


def level_axis(axes: Axes, names: Sequence[str]) -> None:
    """One place per level, evenly spaced: levels such as 0, 1, 2, 16 are names and not a scale."""
    level_ticks(axes, names)
    axes.set_xlim(min(-0.4, len(names) / 2 - 1.8), max(len(names) - 0.6, len(names) / 2 + 0.8))


def row_axis(axes: Axes, names: Sequence[str], **options: Any) -> None:
    """One row per name, from top to bottom, as in a bar chart."""
    axes.set_yticks(range(len(names)), names, **options)
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="y", visible=False)
    axes.grid(axis="x", visible=True)


def label(
    axes: Axes,
    words: str,
    at: tuple[float, float],
    offset: tuple[float, float] = (6, 0),
    **options: Any,
) -> None:
    """A text next to a place, `offset` in points."""
    options = {"va": "center", "fontsize": 8.5, **options}
    axes.annotate(words, at, xytext=offset, textcoords="offset points", **options)


def series(axes: Axes, line: Line, aside: float = 0.0, **options: Any) -> None:
    """A line with a gap at each cell that failed, and with the interval of each point; moved
    `aside` from the levels' places."""
    tried = [(n + aside, point) for n, point in enumerate(line.points) if point.tried]
    values = [math.nan if point.value is None else point.value for _, point in tried]
    axes.plot([place for place, _ in tried], values, **options)
    bars: list[tuple[float, float, float]] = []
    for place, point in tried:
        if point.low is not None and point.high is not None:
            bars.append((place, point.low, point.high - point.low))
    if bars:
        at, low, length = zip(*bars, strict=True)
        axes.errorbar(at, low, yerr=([0.0] * len(bars), length), ecolor=options["color"], **BAR)


def dots(axes: Axes, line: Line, runs: Sequence[RunRow], color: str) -> None:
    """The throughput of every valid run as a small dot next to its cell's median."""
    good = (run for run in runs if run.status == "ok" and run.samples_per_s)
    of_cell = text.grouped(good, lambda run: run.key)
    dotted = [
        (place + 0.09 + 0.035 * (index % 3), run)
        for place, point in enumerate(line.points)
        for index, run in enumerate(of_cell.get(point.row.key, ()) if point.row else ())
    ]
    places, rates = [x for x, _ in dotted], [run.samples_per_s for _, run in dotted]
    axes.plot(places, rates, ".", markersize=4.5, color=color, alpha=0.75, zorder=3)


def end_labels(axes: Axes, x: float, labels: Sequence[tuple[float, str, str]]) -> None:
    """Names of lines at their right ends, moved apart where they would overlap. `labels` are (y,
    words, colour). Call it last, when the limits of the axes are final."""
    low, high = axes.get_ylim()
    line = (high - low) * LABEL_PX / axes.get_window_extent().height
    ordered = sorted(labels)
    halves = [line * (1 + words.count("\n")) / 2 for _, words, _ in ordered]
    places, edge = [], -math.inf
    for (y, _, _), half in zip(ordered, halves, strict=True):
        places.append(max(y, edge + half))
        edge = places[-1] + half
    edge = high + line / 2
    # From the top, because those above the panel would be cut off.
    for (_, words, color), half, place in reversed([*zip(ordered, halves, places, strict=True)]):
        at = min(place, edge - half)
        edge = at - half
        label(axes, words, (x, at), (8, 0), color=color, fontsize=9.5, annotation_clip=False)
