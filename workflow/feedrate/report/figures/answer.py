"""The leading figure: training throughput on each device, its two ceilings, and verdicts."""

import textwrap
from collections.abc import Iterable
from typing import Any

from msgspec.structs import asdict

from feedrate.config.values import level_text
from feedrate.report import text
from feedrate.report.answers import recommended_cell
from feedrate.report.context import PageSettings
from feedrate.report.figures import _canvas as canvas
from feedrate.report.lines import Line, Point, measured_lines, point_status, unsupported_note
from feedrate.report.rows import CellRow, Inputs
from feedrate.results.statistics import Estimate
from feedrate.results.verdicts import ratios

KINDS = {"answer": 10}

Rates = dict[int, Estimate]
"""Samples/s with its interval, by the place of the level on the axis."""

TRAINING = canvas.STYLES[0]
LOADER: canvas.Style = {"color": canvas.RED, "marker": "v", "linestyle": (0, (5, 2))}
MODEL: canvas.Style = {"color": canvas.GREEN, "marker": "s", "linestyle": (0, (1, 1.2))}


def answer(settings: PageSettings, inputs: Inputs) -> canvas.Figure:
    """One panel for each device."""
    factor = settings.factor
    cells, runs = inputs.cells(settings.study), inputs.runs(settings.study)
    lines = measured_lines(settings, cells, factor)
    use = {device: recommended_cell(settings, cells, device) for device in settings.measured}
    shown = [
        line
        for device in settings.measured
        if (line := _main_line((one for one in lines if one.device == device), use[device]))
    ]
    if not shown:
        return canvas.statement("No cell has a valid result, so there is no throughput to draw.")
    figure, panels = canvas.new(0.5 + 3.7 * len(shown), len(shown))
    for axes, line in zip(panels, shown, strict=True):
        axes.set_xlabel(settings.factor_label(factor))
        axes.set_ylabel("samples/s")
        axes.set_title(textwrap.fill(_title(settings, line, use[line.device]), 60))
        _panel(axes, line, factor, use[line.device])
        canvas.dots(axes, line, runs, canvas.BLACK)
    drawn = [line.device for line in shown]
    empty = [settings.label(device) for device in settings.measured if device not in drawn]
    missing = f"No cell has a valid result on {text.listed(empty)}." if empty else ""
    canvas.note(figure, [missing, *(unsupported_note(settings, device) for device in drawn)])
    return figure


def _main_line(lines: Iterable[Line], cell: CellRow | None) -> Line | None:
    """The line with this cell, otherwise the line with the fastest one."""
    valid = [line for line in lines if line.valid]
    own = (line for line in valid if cell and any(point.row is cell for point in line.points))
    return next(own, max(valid, key=lambda line: line.best, default=None))


def _panel(axes: canvas.Axes, line: Line, factor: str, use: CellRow | None) -> None:
    loader, model = _alone(line, "loader"), _alone(line, "model")
    # A ceiling far above would flatten the line that matters: it leaves through the top instead.
    ceilings = [rate.value for rate in (*loader.values(), *model.values())]
    top = 1.25 * max([line.best, *(rate for rate in ceilings if rate < 3 * line.best)])
    axes.set_ylim(0, top)
    ticks = [level_text(point.levels[factor]) for point in line.points]
    if len(ticks) <= canvas.FEW // 2:
        remarks = [_remark(line, point) for point in line.points]
        ticks = ["\n".join(pair).rstrip() for pair in zip(ticks, remarks, strict=True)]
    canvas.level_axis(axes, ticks)
    labels = [
        *_ceiling(axes, "loader only", LOADER, loader, top),
        *_ceiling(axes, "model only", MODEL, model, top),
        (line.valid[-1].value or 0.0, "training", TRAINING["color"]),
    ]
    canvas.series(axes, line, linewidth=2.4, markersize=8, zorder=5, **TRAINING)
    for place, point in enumerate(line.points):
        if point.failed:
            axes.plot(place, 0.03 * top, "x", color=canvas.BLACK, markersize=9, markeredgewidth=2)
        chosen = bool(use and point.row is use)
        if point.value is not None and (len(line.points) <= canvas.FEW or chosen):
            near = [rates[place].value for rates in (loader, model) if place in rates]
            # The number is above its point unless a ceiling runs there.
            below = any(0 < rate - point.value < 0.14 * top for rate in near)
            offset, va = (-12, "top") if below else (11, "bottom")
            words = text.number(point.value, 3)
            _bold(axes, words, (place, point.value), offset, va=va, bbox=canvas.PAPER)
        if chosen:
            axes.axvspan(place - 0.42, place + 0.42, color=canvas.BLUE, alpha=0.09, linewidth=0)
            _bold(axes, "use this", (place, 0), 7, va="baseline")
    canvas.end_labels(axes, len(line.points) - 0.75, labels)


def _alone(line: Line, part: str) -> Rates:
    """The rate of a part alone at each level, with the relative interval of its ratio to training
    in the same rounds."""
    found: Rates = {}
    for place, point in enumerate(line.points):
        row = point.row
        rate = row and getattr(row, f"{part}_samples_per_s")
        if row and rate and row.samples_per_s and (ratio := ratios(asdict(row))[part]):
            low, high = (end and end / ratio.value * rate for end in (ratio.low, ratio.high))
            found[place] = Estimate(rate, low, high)
    return found


def _ceiling(
    axes: canvas.Axes, name: str, look: canvas.Style, rates: Rates, top: float
) -> list[tuple[float, str, str]]:
    """Draw a ceiling; where it leaves the panel, its value is written at the upper edge."""
    if not rates:
        return []
    values = [rate.value for rate in rates.values()]
    axes.plot([*rates], values, linewidth=1.6, markersize=6, zorder=3, **look)
    known = [(place, rate.low, rate.high) for place, rate in rates.items() if rate.low is not None]
    if known:
        axes.vlines(*zip(*known, strict=True), color=look["color"], linewidth=1.2, zorder=3)
    options = {"va": "top", "ha": "center", "color": look["color"], "bbox": canvas.PAPER}
    for place, rate in rates.items():
        if rate.value > top and len(rates) <= canvas.FEW:
            words = f"↑ {text.number(rate.value, 3)}"
            canvas.label(axes, words, (place, top), (0, -2), fontsize=9, **options)
    return [(min(values[-1], 0.97 * top), name, look["color"])]


def _bold(
    axes: canvas.Axes, words: str, at: tuple[float, float], offset: float, **options: Any
) -> None:
    look = {"ha": "center", "weight": "bold", "color": canvas.BLUE, "fontsize": 10, "zorder": 6}
    canvas.label(axes, words, at, (0, offset), **look, **options)


def _remark(line: Line, point: Point) -> str:
    """The text below a level: its verdict and data-wait share, or why it has no number."""
    if point.value is None or point.row is None:
        return textwrap.fill(point_status(line, point), 12)
    wait = point.row.data_wait_share
    waits = f"waits {text.share(wait)}" if wait is not None else ""
    return "\n".join(filter(None, (point.row.verdict, waits, "noisy" * point.row.noisy)))


def _title(settings: PageSettings, line: Line, use: CellRow | None) -> str:
    """The device, the levels that the panel holds fixed, and the setting to use."""
    name = text.with_remark(settings.label(line.device), text.levels_text(line.others))
    if use is None:
        return name + ": undecided" * any(p.row and p.row.open for p in line.points)
    levels = {k: v for k, v in use.levels.items() if k not in line.others}
    is_baseline = use.levels == settings.baseline
    gain = f", {text.ratio(use.speedup)} the baseline" if use.speedup and not is_baseline else ""
    return f"{name}: use {text.levels_text(levels)} ({text.rate(use.samples_per_s)}{gain})"
