"""An ablation ladder: what each level gains alone over the baseline, with memory beside speed."""

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from feedrate.config.values import level_text
from feedrate.report import text
from feedrate.report.figures import canvas
from feedrate.report.grid import (
    Line,
    Spot,
    factor_label,
    lacks,
    main_factor,
    measured_lines,
    rest_text,
    tried,
)
from feedrate.report.rows import CellRow, Inputs
from feedrate.report.settings import FigureSettings

RUNG_IN = 0.34


def draw(settings: FigureSettings, inputs: Inputs) -> Figure:
    """Rungs are the levels of one factor; a pair of panels for each device and other settings."""
    factor = main_factor(settings, settings.figure.x)
    lines = tried(measured_lines(settings, inputs.cells(settings.study), factor))
    lines = [line for line in lines if line.has_numbers]
    if not lines:
        return canvas.statement("No cell ended well, so there is no ladder to draw.")
    heights = [0.9 + RUNG_IN * len(_rungs(line)) for line in lines]
    figure = Figure(figsize=(canvas.WIDTH_IN, 0.3 + sum(heights)), layout="constrained")
    panels = figure.subplots(
        len(lines),
        2,
        squeeze=False,
        gridspec_kw={"height_ratios": heights, "width_ratios": [1.7, 1]},
    )
    for line, (speed, memory) in zip(lines, panels, strict=True):
        rest = rest_text(settings, line.rest)
        speed.set_title(settings.label(line.device) + (f", {rest}" if rest else ""))
        rungs = _rungs(line)
        at_base = [spot.levels[factor] == settings.baseline[factor] for spot in rungs]
        _speeds(speed, rungs, at_base)
        _memories(memory, rungs)
        names = [level_text(spot.levels[factor]) for spot in rungs]
        speed.set_yticks(range(len(rungs)), names)
    speed.set_xlabel(f"throughput over the baseline, by {factor_label(settings, factor)}")
    memory.set_xlabel("peak memory (GiB)")
    canvas.note(figure, [_lacking(settings, device, factor) for device in settings.measured])
    return figure


def _lacking(settings: FigureSettings, device: str, factor: str) -> str:
    """The rungs that a device does not support, in a sentence; empty where it supports all."""
    names = [
        level_text(level)
        for level in settings.factors[factor].levels
        if lacks(settings, device, {factor: level})
    ]
    return f"Not supported on {settings.label(device)}: {text.listed(names)}." if names else ""


def _rungs(line: Line) -> list[Spot]:
    """The cells of a line that were tried; what is not supported is told in the note."""
    return [spot for spot in line.spots if spot.value is not None or spot.broke]


def _speeds(axes: Axes, rungs: Sequence[Spot], at_base: Sequence[bool]) -> None:
    axes.axvline(1, color=canvas.GREY, linewidth=1)
    gains = [_gain(spot.row) for spot in rungs]
    reach = max((abs(high - 1) for gain in gains if gain for high in gain), default=0.1)
    axes.set_xlim(min(0.9, 1 - 1.15 * reach), max(1.1, 1 + 1.6 * reach))
    for place, (spot, gain) in enumerate(zip(rungs, gains, strict=True)):
        if gain is None or at_base[place]:
            word = text.STATUS_WORDS[spot.status] if spot.broke else text.rate(spot.value)
            axes.text(1.01, place, word, va="center", fontsize=8.5, bbox=canvas.PAPER)
            continue
        value, low, high = gain
        color, hatch = (canvas.SKY, "") if value >= 1 else (canvas.ORANGE, "///")
        axes.barh(place, value - 1, left=1, height=0.62, color=color, hatch=hatch)
        if low < high:
            axes.plot([low, high], [place, place], color=canvas.BLACK, linewidth=1.4)
            for end in (low, high):
                axes.plot(
                    [end] * 2, [place - 0.14, place + 0.14], color=canvas.BLACK, linewidth=1.4
                )
        axes.annotate(
            text.ratio(value),
            (max(1.0, high), place),
            xytext=(4, 0),
            textcoords="offset points",
            va="center",
            fontsize=8.5,
        )
    _frame(axes, len(rungs))


def _gain(row: CellRow | None) -> tuple[float, float, float] | None:
    """Ratio to the baseline with its interval; the ratio alone thrice where there is none."""
    if row is None or row.speedup is None:
        return None
    low, high = row.speedup_ci_low, row.speedup_ci_high
    if low is None or high is None:
        low = high = row.speedup
    return row.speedup, low, high


def _memories(axes: Axes, rungs: Sequence[Spot]) -> None:
    values = [spot.row.peak_memory_gib if spot.row else None for spot in rungs]
    axes.set_xlim(0, 1.35 * max((value for value in values if value), default=1.0))
    for place, value in enumerate(values):
        if value:
            axes.barh(place, value, height=0.62, color=canvas.LIGHT)
            axes.text(value, place, f" {text.number(value, 3)}", va="center", fontsize=8.5)
    axes.set_yticks([])
    _frame(axes, len(rungs))


def _frame(axes: Axes, rungs: int) -> None:
    axes.set_ylim(rungs - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=False, axis="y")
    axes.grid(visible=True, axis="x")
