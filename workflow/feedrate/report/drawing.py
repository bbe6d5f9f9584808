"""The drawing of figures with matplotlib, as SVG with reproducible bytes."""

import io
import math
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, TwoSlopeNorm
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator

from feedrate.report import chart
from feedrate.report.chart import Label, Panel, Picture, Series

FONTS = "'DejaVu Sans', Verdana, sans-serif"
"""Texts are laid out with the first font. The second is as wide, and others are narrower."""
NOTE_LETTERS = 70
"""The letters of a remark that fit into a line."""
INTERVAL: dict[str, Any] = {"fmt": "none", "capsize": 3, "elinewidth": 1.6, "capthick": 1.6}
COLORS = LinearSegmentedColormap.from_list("tiles", [chart.ORANGE, "#ffffff", chart.SKY])
"""Orange is below 1, blue is above; readers with any colour vision can distinguish them."""
TOO_SMALL = 5.0
"""Font size in points; below it a tile shows only its colour, and a table has the numbers."""

_RC = {
    "font.family": "DejaVu Sans",
    **dict.fromkeys(("xtick.labelsize", "ytick.labelsize"), 9.5),
    "axes.titlesize": 11,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    **dict.fromkeys(("axes.labelcolor", "xtick.color", "ytick.color", "text.color"), chart.BLACK),
    "axes.edgecolor": chart.GREY,
    "legend.fontsize": 9.5,
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
    return stream.getvalue().replace("'DejaVu Sans'", FONTS)


def draw(picture: Picture) -> Figure:
    """A figure, or the sentence in its place."""
    if not picture.panels:
        figure = Figure(figsize=(chart.WIDTH_IN, 1.1))
        words = textwrap.fill(picture.sentence, 55)
        figure.text(0.02, 0.5, words, va="center", fontsize=11, color=chart.GREY)
        return figure
    columns = len(picture.widths)
    heights = [panel.height_in for panel in picture.panels[::columns]]
    names = {series.name for panel in picture.panels for series in panel.series if series.name}
    lines = math.ceil((len(names) + 1) / picture.key_columns) if picture.key_columns else 1
    height_in = sum(heights) + chart.LEGEND_LINE_IN * lines
    figure = Figure(figsize=(chart.WIDTH_IN, height_in), layout="constrained")
    all_axes = figure.subplots(
        len(heights),
        columns,
        squeeze=False,
        sharex=picture.share == "x",
        sharey="col" if picture.share == "y of columns" else False,
        gridspec_kw={"height_ratios": heights, "width_ratios": picture.widths},
    )
    for axes, panel in zip(all_axes.flat, picture.panels, strict=True):
        _panel(axes, panel)
    for axes, panel in zip(all_axes.flat, picture.panels, strict=True):
        set_limits = axes.set_xlim if panel.rows else axes.set_ylim
        if not panel.tiles:
            set_limits(*panel.limits)  # after all panels are drawn, because they may share a scale
    if picture.key_columns:
        found = [axes.get_legend_handles_labels() for axes in all_axes.flat]
        known = {n: h for handles, names in found for h, n in zip(handles, names, strict=True)}
        place = f"outside {'upper' if any(picture.notes) else 'lower'} left"
        columns = min(picture.key_columns, len(known))
        figure.legend([*known.values()], [*known], loc=place, frameon=False, ncols=columns)
    _notes(figure, picture.notes)
    return figure


def _panel(axes: Axes, panel: Panel) -> None:
    axes.set_title(textwrap.fill(panel.title, 60))
    labels = [panel.place_label, panel.value_label]
    across, along = reversed(labels) if panel.rows else labels
    axes.set(xlabel=across, ylabel=along)
    if panel.tiles:
        _tiles(axes, panel)
        return
    if panel.rule:
        value, name = panel.rule
        look: dict[str, Any] = {"linestyle": ":" if name else "-", "linewidth": 1.3}
        (axes.axvline if panel.rows else axes.axhline)(
            value, label=name or None, color=chart.GREY, **look
        )
    if panel.span:
        start, end, name = panel.span
        axes.axvspan(start, end, label=name, color=chart.LIGHT, linewidth=0, zorder=0)
    for series in panel.series:
        _series(axes, series, panel.rows)
    for label in panel.labels:
        _label(axes, label, panel.rows)
    if panel.chosen is not None:
        span = panel.chosen - 0.42, panel.chosen + 0.42
        axes.axvspan(*span, color=chart.BLUE, alpha=0.09, linewidth=0)
    _places(axes, panel)
    if panel.key:
        axes.legend(loc="upper left", bbox_to_anchor=(1, 1), frameon=False, handlelength=1.5)
    if panel.log:
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:,g}")
        if panel.log == "fine":
            axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            axes.yaxis.set_minor_locator(NullLocator())


def _places(axes: Axes, panel: Panel) -> None:
    """The axis of places. Levels such as 0, 1, 2, 16 are evenly spaced: they are no scale. Of many
    only some are labelled."""
    names = panel.names
    if panel.rows:
        axes.set_yticks(range(len(names)), names)
        axes.set_ylim(len(names) - 0.4, -0.6)
        axes.tick_params(axis="y", length=0)
        axes.grid(axis="y", visible=False)
        axes.grid(axis="x", visible=True)
    elif names:
        _levels(axes, names)
        axes.set_xlim(-0.6, len(names) - 0.4)
    else:
        axes.xaxis.set_major_locator(MaxNLocator("auto", steps=[1, 2, 2.5, 5, 10], integer=True))
        axes.margins(x=0.01)


def _levels(axes: Axes, names: Sequence[str]) -> None:
    every = math.ceil(len(names) / chart.FEW)
    axes.set_xticks(range(0, len(names), every), names[::every])
    axes.tick_params(axis="x", length=0)


def _series(axes: Axes, series: Series, rows: bool) -> None:
    places: Any = [mark.place for mark in series.marks]
    values: Any = [math.nan if mark.value is None else mark.value for mark in series.marks]
    name = series.name or None
    if series.bars:
        starts = [mark.start for mark in series.marks]
        lengths = [value - start for value, start in zip(values, starts, strict=True)]
        bar = axes.barh if rows else axes.bar
        bar(places, lengths, 0.62 if rows else 0.8, starts, label=name, **series.look)
    else:
        line = (values, places) if rows else (places, values)
        axes.plot(*line, label=name, **series.look)
    known = [(m.place, m.low, m.high - m.low) for m in series.marks if m.low and m.high]
    if known:
        at, low, lengths = map(list, zip(*known, strict=True))
        places, values = (low, at) if rows else (at, low)
        error: dict[str, Any] = {"xerr" if rows else "yerr": ([0.0] * len(known), lengths)}
        color = chart.BLACK if series.bars else series.look["color"]
        axes.errorbar(places, values, **error, ecolor=color, zorder=4, **INTERVAL)
    for mark in series.marks:
        if mark.words and mark.value is not None:
            look = {} if series.bars else {"color": series.look["color"]}
            end = mark.high if series.bars and mark.high else mark.value
            _label(axes, Label(mark.place, end, mark.words, look=look), rows)


def _label(axes: Axes, label: Label, rows: bool) -> None:
    at = (label.value, label.place) if rows else (label.place, label.value)
    options = {"va": "center", "fontsize": 8.5, **label.look}
    axes.annotate(label.words, at, xytext=label.offset, textcoords="offset points", **options)


def _tiles(axes: Axes, panel: Panel) -> None:
    lines = list(panel.tiles.values())
    known = [tile.value for line in lines for tile in line if tile.value]
    reach = max(0.1, *(abs(value - 1) for value in known))
    norm, size = TwoSlopeNorm(1.0, 1 - reach, 1 + reach), min(10.5, 70 / len(panel.names))
    for row, line in enumerate(lines):
        for column, tile in enumerate(line):
            hatched: dict[str, Any] = {"facecolor": "white", "hatch": "///"}
            look = {"facecolor": COLORS(norm(tile.value))} if tile.value else hatched
            place = column - 0.5, row - 0.5
            axes.add_patch(Rectangle(place, 1, 1, edgecolor=chart.LIGHT, **look))
            if size <= TOO_SMALL:
                continue
            small = tile.small if size > 9 else ""
            middle: dict[str, Any] = {"ha": "center", "va": "center"}
            own: dict[str, Any] = {"fontsize": size}
            if not tile.value:
                own = {"fontsize": 0.85 * size, "bbox": chart.PAPER}
            words = tile.words if tile.value else textwrap.fill(tile.words, 12)
            axes.text(column, row - (0.1 if small else 0), words, **middle, **own)
            axes.text(column, row + 0.26, small, fontsize=7.5, **middle)
    _levels(axes, panel.names)
    axes.set_yticks(range(len(lines)), [textwrap.fill(name, 28) for name in panel.tiles])
    axes.set_xlim(-0.5, len(panel.names) - 0.5)
    axes.set_ylim(len(lines) - 0.5, -0.5)
    axes.tick_params(length=0)
    axes.grid(visible=False)
    axes.spines[:].set_visible(False)


def _notes(figure: Figure, notes: Sequence[str]) -> None:
    """Small remarks below the figure, which grows by their lines."""
    words = [line for remark in notes for line in textwrap.wrap(remark, NOTE_LETTERS)]
    if words:
        figure.set_figheight(figure.get_figheight() + chart.LINE_IN * len(words))
        figure.supxlabel("\n".join(words), x=0.02, ha="left", fontsize=8.5, color=chart.GREY)
