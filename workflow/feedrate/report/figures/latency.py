"""Latency and throughput along one factor: a row of two panels for each device and first factor."""

from collections.abc import Sequence
from dataclasses import replace

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator, NullLocator

from feedrate.config.values import Level, level_text
from feedrate.report import text
from feedrate.report.figures import _canvas as canvas
from feedrate.report.lines import Line, Point, differing, tried_lines
from feedrate.report.params import PageSettings
from feedrate.report.rows import Inputs

NEEDS = ("cells",)
ORDER = 70

ROW_IN = 2.5
"""The height of a row of panels."""
ASIDE = 0.07
"""The distance between series at one level, in levels, so that no bar hides another."""
KEY_IN = 0.22
"""The height of a line of the legend."""


@canvas.as_svg
def render(settings: PageSettings, inputs: Inputs) -> Figure:
    """Rows in the order of the configuration; a series has the same style in all rows."""
    factor = settings.factor
    lines = tried_lines(settings, inputs.cells(settings.study), factor)
    lines = [line for line in lines if line.valid]
    if not lines:
        return canvas.statement("No cell has a valid result, so there is no latency to draw.")
    apart = next((name for name in settings.factors if name != factor), None)
    names = list(dict.fromkeys(_series(settings, line, apart) for line in lines))
    rows: dict[str, list[Line]] = {}
    for line in lines:
        title = settings.label(line.device)
        title += f": {level_text(line.others[apart])}" if apart else ""
        rows.setdefault(title, []).append(line)
    height_in = ROW_IN * len(rows) + KEY_IN * len(names) + 0.3
    figure = Figure(figsize=(canvas.WIDTH_IN, height_in), layout="constrained")
    alike = len({line.device for line in lines}) == 1  # models can be compared, devices cannot
    grid = figure.subplots(len(rows), 2, squeeze=False, sharey="col" if alike else False)
    for axes, (title, whole) in zip(grid, rows.items(), strict=True):
        group = _tried(whole)
        looks = [canvas.style(names.index(_series(settings, line, apart))) for line in group]
        axes[0].set_title(canvas.wrap(title, 40))
        for part, wanted in zip(axes, (_latencies, _rates), strict=True):
            part.set_xlabel(settings.factor_label(factor))
            _panel(part, [wanted(line) for line in group], looks, factor)
        axes[0].set_ylabel("latency (ms)")
        _ratios(axes[0])
        axes[1].set_ylabel("samples/s")
    for axes in grid[:, 1]:  # after all panels are drawn, because they may share a scale
        axes.set_ylim(bottom=0)
    keys = [Line2D([], [], **canvas.style(number).line) for number in range(len(names))]
    figure.legend(keys, names, **canvas.LEGEND)
    return figure


def _tried(lines: Sequence[Line]) -> list[Line]:
    """The lines of a panel without the levels at which no cell was tried."""
    kept = [
        place
        for place, points in enumerate(zip(*(line.points for line in lines), strict=True))
        if any(point.value is not None or point.failed for point in points)
    ]
    return [replace(line, points=[line.points[place] for place in kept]) for line in lines]


def _panel(axes: Axes, lines: Sequence[Line], looks: Sequence[canvas.Style], factor: str) -> None:
    canvas.level_axis(axes, [level_text(point.levels[factor]) for point in lines[0].points])
    for number, (line, look) in enumerate(zip(lines, looks, strict=True)):
        aside = ASIDE * (number - (len(lines) - 1) / 2)
        places, values = canvas.path(line)
        places_aside = [place + aside for place in places]
        axes.plot(places_aside, values, **look.line, linewidth=1.6, markersize=6)
        for place, point in enumerate(line.points):
            canvas.whiskers(axes, place + aside, point.low, point.high, look.color)


def _ratios(axes: Axes) -> None:
    """A logarithmic axis with round numbers as labels."""
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.yaxis.set_minor_locator(NullLocator())


def _rates(line: Line) -> Line:
    """The throughput with the interval of its median."""
    return line


def _latencies(line: Line) -> Line:
    """The median latency of each cell, with the 99th percentile as the upper end, in ms."""
    return replace(line, points=[_latency(point) for point in line.points])


def _latency(point: Point) -> Point:
    row = point.row
    if row is None or point.value is None or row.step_time_median_s is None:
        return replace(point, value=None, low=None, high=None)
    median_ms = 1000 * row.step_time_median_s
    p99_ms = None if row.step_time_p99_s is None else 1000 * row.step_time_p99_s
    return replace(point, value=median_ms, low=median_ms, high=p99_ms)


def _series(settings: PageSettings, line: Line, apart: str | None) -> str:
    others: dict[str, Level] = {name: at for name, at in line.others.items() if name != apart}
    return text.levels_text(differing(settings, others)) or "baseline settings"
