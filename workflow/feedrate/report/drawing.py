"""The drawing of figures with matplotlib, as SVG with reproducible bytes."""

import io
import math
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator

from feedrate.report import chart
from feedrate.report.chart import Look, Panel, Picture, Series

FONTS = "'DejaVu Sans', Verdana, sans-serif"
"""Texts are laid out with the first font. The second is as wide, and others are narrower."""
PATH, MORE_DIGITS = re.compile(r' d="[^"]*"'), re.compile(r"(\.\d\d)\d+")
"""The points of a path, whose further digits would double the size of a file."""
MARKERS = {
    "circle": "o", "square": "s", "triangle": "^", "triangle_down": "v", "diamond": "D",
    "thick_cross": "X", "cross": "x", "tick": "|",
}  # fmt: skip
INTERVAL: dict[str, Any] = {"fmt": "none", "capsize": 3, "elinewidth": 1.5, "capthick": 1.5}

_RC = {
    "font.family": "DejaVu Sans",
    "font.size": chart.FONT_PT,
    "axes.titlesize": "medium",
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    **dict.fromkeys(("axes.labelcolor", "xtick.color", "ytick.color", "text.color"), chart.BLACK),
    "axes.edgecolor": chart.GREY,
    **dict.fromkeys(("axes.spines.top", "axes.spines.right"), False),
    "axes.axisbelow": True,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "grid.color": "#e6e6e6",
    "hatch.linewidth": 0.6,
    "lines.markersize": 5.5,
    "svg.hashsalt": "feedrate",
    "svg.fonttype": "none",
    "text.parse_math": False,
}


@contextmanager
def theme() -> Iterator[None]:
    """Draw and save inside this context: our style, whatever a user's matplotlibrc says."""
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(_RC)
        yield


def as_svg(picture: Picture, title: str) -> str:
    """A figure as SVG, with text as text and without a date: equal data have equal bytes."""
    stream = io.StringIO()
    with theme():
        metadata = {"Title": title, "Date": None, "Creator": None}
        draw(picture).savefig(stream, format="svg", metadata=metadata)
    svg = stream.getvalue().replace("'DejaVu Sans'", FONTS)
    return PATH.sub(lambda path: MORE_DIGITS.sub(r"\1", path[0]), svg)


def draw(picture: Picture) -> Figure:
    """The drawing of a picture."""
    columns = min(picture.columns, len(picture.panels))
    lines = [picture.panels[n : n + columns] for n in range(0, len(picture.panels), columns)]
    heights = [max(panel.height_in for panel in line) for line in lines]
    figure = Figure(layout="constrained")
    grid = figure.subplots(
        len(lines),
        columns,
        squeeze=False,
        sharey=picture.share_y,
        gridspec_kw={"height_ratios": heights},
    )
    for axes, panel in zip(grid.flat, picture.panels, strict=False):
        _panel(axes, panel, chart.AXIS_LETTERS // columns)
    for axes, panel in zip(grid.flat, picture.panels, strict=False):
        _limits(axes, panel)  # after all panels are drawn, because they may share a scale
    for axes in grid.flat[len(picture.panels) :]:
        axes.set_visible(False)
    figure.set_size_inches(chart.WIDTH_IN, sum(heights) + _key(figure, picture))
    return figure


def _key(figure: Figure, picture: Picture) -> float:
    """The key of all panels below them, to read line by line; its height."""
    handles: dict[str, Any] = {}
    for axes in figure.axes:
        handles |= dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
    if not handles:
        return 0.0
    series = [series.name for panel in picture.panels for series in panel.series]
    order = [name for name in dict.fromkeys([*series, *handles]) if name in handles]
    columns = min(picture.key_columns, len(order))
    names = [name for column in range(columns) for name in order[column::columns]]
    lines = max(1 + name.count("\n") for name in names) * math.ceil(len(names) / columns)
    place: dict[str, Any] = {"loc": "outside lower left", "ncols": columns, "frameon": False}
    shown = [handles[name] for name in names]
    figure.legend(shown, names, handlelength=2.6, columnspacing=1.4, **place)
    return chart.LINE_IN * lines + 0.1


def _panel(axes: Axes, panel: Panel, letters: int) -> None:
    heads = panel.heads[1] or (panel.rule and panel.rule[1])
    axes.set_title(panel.title, pad=8 + (chart.FONT_PT + 3 if heads else 0))
    axes.set(xlabel=panel.x_label, ylabel=panel.y_label)
    if panel.span:
        start, end, name = panel.span
        axes.axvspan(start, end, label=name, color=chart.LIGHT, linewidth=0, zorder=0)
    for series in panel.series:
        _series(axes, series, bool(panel.rows))
    if panel.rule:
        axes.axvline(panel.rule[0], color=chart.BLACK, linestyle=(0, (4, 2)), linewidth=1.3)
    if panel.x_names:
        _named_places(axes, panel.x_names, letters)
    else:
        few, steps = (4 if panel.rows else 6), [1, 2, 2.5, 5, 10]
        axes.xaxis.set_major_locator(MaxNLocator(few, steps=steps, integer=not panel.rows))
    if panel.log:
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_minor_locator(NullLocator())
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:,g}")
    if panel.rows:
        _rows(axes, panel)


def _limits(axes: Axes, panel: Panel) -> None:
    """The ends of the scales, and what a line marks, above it and inside the width of the axes."""
    axes.set(xlim=panel.x_limits, ylim=panel.y_limits)
    if panel.rule:
        value, words = panel.rule
        low, high = axes.get_xlim()
        share = (value - low) / (high - low)
        side = "left" if share < 0.3 else "right" if share > 0.7 else "center"
        _write(axes, words, (value, 1), axes.get_xaxis_transform(), (0, 4), ha=side, va="bottom")


def _named_places(axes: Axes, names: Sequence[str], letters: int) -> None:
    """Levels such as 0, 1, 2, 16 are evenly spaced: they are no scale. Where there is room for so
    many letters only, not all have their names."""
    every = math.ceil(len(names) * (2 + max(map(len, names))) / letters)
    axes.set_xticks(range(0, len(names), every), names[::every])
    axes.tick_params(axis="x", length=0)
    axes.set_xlim(-0.6, len(names) - 0.4)


def _rows(axes: Axes, panel: Panel) -> None:
    """The names of rows and their words, outside of the axes: no bar or line can cross them."""
    axes.set_yticks(range(len(panel.rows)), [row.name for row in panel.rows])
    axes.set_ylim(len(panel.rows) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0, pad=6)
    axes.grid(axis="y", visible=False)
    axes.grid(axis="x", visible=True)
    for place, (row, label) in enumerate(zip(panel.rows, axes.get_yticklabels(), strict=True)):
        weight = "bold" if row.strong else "normal"
        label.set_fontweight(weight)
        look = {"va": "center", "weight": weight}
        _write(axes, row.words, (1, place), axes.get_yaxis_transform(), (6, 0), **look)
    left, right = panel.heads
    above: dict[str, Any] = {"va": "bottom", "color": chart.GREY}
    _write(axes, left, (0, 1), "axes fraction", (-6, 4), ha="right", **above)
    _write(axes, right, (1, 1), "axes fraction", (6, 4), **above)


def _write(axes: Axes, words: str, at: Any, near: Any, shift: Any, **look: Any) -> None:
    """Write words beside a place in the coordinates `near`; `shift` is in points."""
    offset: dict[str, Any] = {"xytext": shift, "textcoords": "offset points"}
    axes.annotate(words, at, xycoords=near, annotation_clip=False, **offset, **look)


def _series(axes: Axes, series: Series, rows: bool) -> None:
    places: Any = [mark.place for mark in series.marks]
    values: Any = [math.nan if mark.value is None else mark.value for mark in series.marks]
    name, look = series.name or None, series.look
    bar: dict[str, Any] = {"facecolor": look.fill or look.color, "edgecolor": look.color}
    bar |= {"linewidth": look.width_pt, "hatch": "////" if look.hatched else None, "label": name}
    if series.bars and rows:
        starts = [mark.start for mark in series.marks]
        lengths = [value - start for value, start in zip(values, starts, strict=True)]
        axes.barh(places, lengths, 0.66, starts, **bar)
    elif series.bars:  # one shape: hundreds of bars would make a large file
        axes.fill_between(places, values, step="mid", **bar)
    else:
        axes.plot(*((values, places) if rows else (places, values)), label=name, **_line(look))
    known = [
        (mark.place, mark.low, mark.high - mark.low)
        for mark in series.marks
        if mark.low is not None and mark.high is not None
    ]
    if known:
        at, low, lengths = map(list, zip(*known, strict=True))
        places, values = (low, at) if rows else (at, low)
        error: dict[str, Any] = {"xerr" if rows else "yerr": ([0.0] * len(known), lengths)}
        color = chart.BLACK if series.bars else look.color
        axes.errorbar(places, values, **error, ecolor=color, zorder=4, **INTERVAL)


def _line(look: Look) -> dict[str, Any]:
    """matplotlib's options for a line with markers, or for markers alone, which cover intervals."""
    options: dict[str, Any] = {
        "color": look.color,
        "linestyle": (0, look.dashes) if look.dashes else "solid",
        "linewidth": look.width_pt,
        "marker": MARKERS.get(look.marker),
        "markersize": look.size_pt,
        "markevery": look.every,
        "markerfacecolor": look.fill or look.color,
    }
    if not look.line:
        thick = 2 if look.marker in ("cross", "tick") else 1
        options |= {"linestyle": "", "zorder": 5, "markeredgewidth": thick}
    return options
