"""Latency and throughput along one factor, side by side, a row for each device and first factor."""

from collections.abc import Sequence
from dataclasses import replace

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator, NullLocator

from feedrate.config.values import Level, level_text
from feedrate.report.figures import canvas
from feedrate.report.grid import (
    Line,
    Spot,
    factor_label,
    main_factor,
    measured_lines,
    rest_text,
    tried,
)
from feedrate.report.rows import Inputs
from feedrate.report.settings import FigureSettings

ROW_IN = 2.5
"""Height of a row of panels."""
ASIDE = 0.07
"""Between series at one level, in levels, so that no bar hides another."""
KEY_IN = 0.22
"""Height of a line of the legend."""


def draw(settings: FigureSettings, inputs: Inputs) -> Figure:
    """Rows in the order of the configuration; a series looks the same in all of them."""
    factor = main_factor(settings, settings.figure.x)
    lines = tried(measured_lines(settings, inputs.cells(settings.study), factor))
    lines = [line for line in lines if line.has_numbers]
    if not lines:
        return canvas.statement("No cell ended well, so there is no latency to draw.")
    apart = next((name for name in settings.factors if name != factor), None)
    names = list(dict.fromkeys(_series(settings, line, apart) for line in lines))
    rows: dict[str, list[Line]] = {}
    for line in lines:
        rows.setdefault(_title(settings, line, apart), []).append(line)
    height_in = ROW_IN * len(rows) + KEY_IN * len(names) + 0.3
    figure = Figure(figsize=(canvas.WIDTH_IN, height_in), layout="constrained")
    alike = len({line.device for line in lines}) == 1  # heads are to be compared, devices are not
    grid = figure.subplots(len(rows), 2, squeeze=False, sharey="col" if alike else False)
    for axes, (title, whole) in zip(grid, rows.items(), strict=True):
        group = _tried(whole)
        looks = [canvas.style(names.index(_series(settings, line, apart))) for line in group]
        axes[0].set_title(canvas.wrap(title, 40))
        for part, wanted in zip(axes, (_latencies, _rates), strict=True):
            part.set_xlabel(factor_label(settings, factor))
            _panel(part, [wanted(line) for line in group], looks, factor)
        axes[0].set_ylabel("latency (ms)")
        _ratios(axes[0])
        axes[1].set_ylabel("samples/s")
    for axes in grid[:, 1]:  # once all is drawn, as panels may share a scale
        axes.set_ylim(bottom=0)
    keys = [_key(canvas.style(number)) for number in range(len(names))]
    figure.legend(keys, names, **canvas.LEGEND)
    return figure


def _tried(lines: Sequence[Line]) -> list[Line]:
    """The lines of a panel without the levels that none of them was tried at."""
    kept = [
        place
        for place in range(len(lines[0].spots))
        if any(line.spots[place].value is not None or line.spots[place].broke for line in lines)
    ]
    return [replace(line, spots=[line.spots[place] for place in kept]) for line in lines]


def _panel(axes: Axes, lines: Sequence[Line], looks: Sequence[canvas.Style], factor: str) -> None:
    canvas.level_axis(axes, [level_text(spot.levels[factor]) for spot in lines[0].spots])
    for number, (line, look) in enumerate(zip(lines, looks, strict=True)):
        aside = ASIDE * (number - (len(lines) - 1) / 2)
        places, values = canvas.path(line)
        axes.plot(
            [place + aside for place in places],
            values,
            color=look.color,
            marker=look.marker,
            linestyle=look.dash,
            linewidth=1.6,
            markersize=6,
        )
        for place, spot in enumerate(line.spots):
            canvas.whiskers(axes, place + aside, spot.low, spot.high, look.color)


def _ratios(axes: Axes) -> None:
    """A scale of ratios, with round numbers written out."""
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.yaxis.set_minor_locator(NullLocator())


def _rates(line: Line) -> Line:
    """Throughput with the interval of its median, as it is."""
    return line


def _latencies(line: Line) -> Line:
    """The line with each cell's median latency, and its 99th percentile as the upper end, in ms."""
    return replace(line, spots=[_latency(spot) for spot in line.spots])


def _latency(spot: Spot) -> Spot:
    row = spot.row
    if row is None or spot.value is None or row.step_time_median_s is None:
        return replace(spot, value=None, low=None, high=None)
    median_ms = 1000 * row.step_time_median_s
    p99_ms = None if row.step_time_p99_s is None else 1000 * row.step_time_p99_s
    return replace(spot, value=median_ms, low=median_ms, high=p99_ms)


def _title(settings: FigureSettings, line: Line, apart: str | None) -> str:
    label = settings.label(line.device)
    return f"{label}: {level_text(line.rest[apart])}" if apart else label


def _series(settings: FigureSettings, line: Line, apart: str | None) -> str:
    rest: dict[str, Level] = {name: at for name, at in line.rest.items() if name != apart}
    return rest_text(settings, rest) or "baseline settings"


def _key(look: canvas.Style) -> Line2D:
    return Line2D([], [], color=look.color, marker=look.marker, linestyle=look.dash)
