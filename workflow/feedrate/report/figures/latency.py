"""Latency and throughput along one factor: a row of two panels for each device and first factor."""

import textwrap
from collections.abc import Sequence
from dataclasses import replace

from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator, NullLocator

from feedrate.config.values import Level, level_text
from feedrate.report import text
from feedrate.report.context import PageSettings
from feedrate.report.figures import _canvas as canvas
from feedrate.report.lines import Line, Point, at_levels, differing, tried_lines
from feedrate.report.rows import Inputs

KINDS = {"latency": 70}

ROW_IN = 2.5
ASIDE = 0.07
"""The distance between series at one level, in levels, so that no bar hides another."""


def latency(settings: PageSettings, inputs: Inputs) -> canvas.Figure:
    """Rows in the order of the configuration; a series has the same style in all rows."""
    factor = settings.factor
    tried = tried_lines(settings, inputs.cells(settings.study), factor)
    lines = [line for line in tried if line.valid]
    if not lines:
        return canvas.statement("No cell has a valid result, so there is no latency to draw.")
    apart = next((name for name in settings.factors if name != factor), None)
    names = list(dict.fromkeys(_series(settings, line, apart, lines) for line in lines))

    def title_of(line: Line) -> str:
        label = settings.label(line.device)
        return f"{label}: {level_text(line.others[apart])}" if apart else label

    rows = text.grouped(lines, title_of)
    height_in = ROW_IN * len(rows) + canvas.LEGEND_LINE_IN * len(names) + 0.3
    # Models can be compared on one scale, devices cannot.
    sharey = "col" if len({line.device for line in lines}) == 1 else False
    figure, panels = canvas.new(height_in, len(rows), 2, sharey=sharey)
    for number, (title, whole) in enumerate(rows.items()):
        axes = panels[2 * number : 2 * number + 2]
        group = at_levels(whole, lambda point: point.tried)
        series = [_series(settings, line, apart, lines) for line in group]
        looks = [canvas.style(names.index(one)) for one in series]
        axes[0].set_title(textwrap.fill(title, 40))
        latencies = [replace(one, points=[_latency(p) for p in one.points]) for one in group]
        parts = {"latency (ms)": latencies, "samples/s": group}
        for part, (label, shown) in zip(axes, parts.items(), strict=True):
            part.set_xlabel(settings.factor_label(factor))
            part.set_ylabel(label)
            _panel(part, shown, looks, factor)
        _logarithmic(axes[0])
    for right in panels[1::2]:  # after all panels are drawn, because they may share a scale
        right.set_ylim(bottom=0)
    keys = [Line2D([], [], **canvas.style(number)) for number in range(len(names))]
    figure.legend(keys, names, **canvas.LEGEND)
    return figure


def _panel(
    axes: canvas.Axes, lines: Sequence[Line], looks: Sequence[canvas.Style], factor: str
) -> None:
    canvas.level_axis(axes, [level_text(point.levels[factor]) for point in lines[0].points])
    for number, (line, look) in enumerate(zip(lines, looks, strict=True)):
        aside = ASIDE * (number - (len(lines) - 1) / 2)
        canvas.series(axes, line, aside, **look, linewidth=1.6, markersize=6)


def _logarithmic(axes: canvas.Axes) -> None:
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.yaxis.set_minor_locator(NullLocator())


def _latency(point: Point) -> Point:
    """The median latency of a cell, with the 99th percentile as the upper end, in ms."""
    row = point.row
    if row is None or point.value is None or row.step_time_median_s is None:
        return replace(point, value=None, low=None, high=None)
    median_ms = 1000 * row.step_time_median_s
    p99_ms = None if row.step_time_p99_s is None else 1000 * row.step_time_p99_s
    return replace(point, value=median_ms, low=median_ms, high=p99_ms)


def _series(settings: PageSettings, line: Line, apart: str | None, lines: Sequence[Line]) -> str:
    others: dict[str, Level] = {name: at for name, at in line.others.items() if name != apart}
    return text.levels_text(differing(settings, others, *lines)) or "measured"
