"""An ablation: the speed-up of each level alone over the baseline, and its peak memory."""

from collections.abc import Sequence
from dataclasses import replace

from feedrate.config.values import level_text
from feedrate.report import text
from feedrate.report.context import PageSettings
from feedrate.report.figures import _canvas as canvas
from feedrate.report.lines import Point, line_name, tried_lines, unsupported_note
from feedrate.report.rows import CellRow, Inputs

KINDS = {"ladder": 60}

ROW_IN = 0.34


def ladder(settings: PageSettings, inputs: Inputs) -> canvas.Figure:
    """Rows are the levels of one factor; two panels for each device and other settings."""
    factor = settings.factor
    lines = [
        replace(line, points=[point for point in line.points if point.tried])
        for line in tried_lines(settings, inputs.cells(settings.study), factor)
        if line.valid
    ]
    if not lines:
        return canvas.statement("No cell has a valid result, so there is no speed-up to draw.")
    heights = [0.9 + ROW_IN * len(line.points) for line in lines]
    ratios = {"height_ratios": heights, "width_ratios": [1.7, 1]}
    figure, panels = canvas.new(0.3 + sum(heights), len(lines), 2, gridspec_kw=ratios)
    for line, speed, memory in zip(lines, panels[::2], panels[1::2], strict=True):
        speed.set_title(line_name(settings, line, lines))
        names = [level_text(point.levels[factor]) for point in line.points]
        canvas.row_axis(speed, names)
        canvas.row_axis(memory, names)
        memory.set_yticks([])
        _speedups(speed, settings, line.points)
        sizes = [point.row.peak_memory_gib if point.row else None for point in line.points]
        memory.set_xlim(0, 1.35 * max(filter(None, sizes), default=1.0))
        for place, gib in enumerate(sizes):
            if gib:
                memory.barh(place, gib, height=0.62, color=canvas.LIGHT)
                memory.text(gib, place, f" {text.number(gib, 3)}", va="center", fontsize=8.5)
    speed.set_xlabel(f"throughput relative to baseline, by {settings.factor_label(factor)}")
    memory.set_xlabel("peak memory (GiB)")
    canvas.note(figure, [unsupported_note(settings, device) for device in settings.measured])
    return figure


def _speedups(axes: canvas.Axes, settings: PageSettings, points: Sequence[Point]) -> None:
    axes.axvline(1, color=canvas.GREY, linewidth=1)
    gains = [_gain(point.row) for point in points]
    reach = max((abs(end - 1) for gain in gains if gain for end in gain), default=0.1)
    axes.set_xlim(min(0.9, 1 - 1.15 * reach), max(1.1, 1 + 1.6 * reach))
    for place, (point, gain) in enumerate(zip(points, gains, strict=True)):
        if gain is None or point.levels == settings.baseline_of(point.levels):
            word = text.STATUS_WORDS[point.status] if point.failed else text.rate(point.value)
            axes.text(1.01, place, word, va="center", fontsize=8.5, bbox=canvas.PAPER)
            continue
        value, low, high = gain
        color, hatch = (canvas.SKY, "") if value >= 1 else (canvas.ORANGE, "///")
        axes.barh(place, value - 1, left=1, height=0.62, color=color, hatch=hatch)
        if low < high:
            axes.errorbar(low, place, xerr=[[0.0], [high - low]], ecolor=canvas.BLACK, **canvas.BAR)
        canvas.label(axes, text.ratio(value), (max(1.0, high), place), (4, 0))


def _gain(row: CellRow | None) -> tuple[float, float, float] | None:
    """The ratio to the baseline with the ends of its interval, which are the ratio without one."""
    if row is None or row.speedup is None:
        return None
    low, high = row.speedup_ci_low, row.speedup_ci_high
    if low is None or high is None:
        low = high = row.speedup
    return row.speedup, low, high
