"""Throughput along one factor: a panel for each device and for published numbers."""

import textwrap
from collections.abc import Sequence

from feedrate.config.values import level_text
from feedrate.report import text
from feedrate.report.context import PageSettings
from feedrate.report.figures import _canvas as canvas
from feedrate.report.lines import (
    Line,
    at_levels,
    differing,
    line_name,
    published_lines,
    tried_lines,
    unsupported_note,
)
from feedrate.report.rows import Inputs, RunRow

KINDS = {"throughput": 110}


def throughput(settings: PageSettings, inputs: Inputs) -> canvas.Figure:
    """Each panel has its own scale: a published eight-card server is not a laptop."""
    factor = settings.factor
    runs = inputs.runs(settings.study)
    ours = tried_lines(settings, inputs.cells(settings.study), factor)
    panels, missing = [], []
    for device in settings.measured:
        mine = [line for line in ours if line.device == device]
        lines = at_levels(mine, lambda point: point.status != "unsupported")
        if any(line.valid for line in lines):
            panels.append((f"Here: {settings.label(device)}", lines))
        else:
            missing.append(f"No cell has a valid result on {settings.label(device)}.")
    if published := published_lines(settings, factor):
        panels.append((f"Published: {settings.origin.title}", published))
    if not panels:
        return canvas.statement(
            "No cell has a valid result and nothing is published, so there is nothing to draw."
        )
    heights = [max(2.9, 0.9 + canvas.LABEL_IN * _labels(settings, lines)) for _, lines in panels]
    figure, all_axes = canvas.new(0.4 + sum(heights), len(panels), height_ratios=heights)
    for axes, (title, lines) in zip(all_axes, panels, strict=True):
        axes.set_title(textwrap.fill(title, 52))
        axes.set_xlabel(settings.factor_label(factor))
        _panel(axes, settings, lines, runs)
    unsupported = [unsupported_note(settings, device) for device in settings.measured]
    canvas.note(figure, [*missing, *unsupported])
    return figure


def _labels(settings: PageSettings, lines: Sequence[Line]) -> int:
    """Lines of text at the right ends of the lines."""
    return sum(1 + _name(settings, line, lines).count("\n") for line in lines if line.valid)


def _panel(
    axes: canvas.Axes, settings: PageSettings, lines: Sequence[Line], runs: Sequence[RunRow]
) -> None:
    canvas.level_axis(axes, [level_text(p.levels[settings.factor]) for p in lines[0].points])
    axes.set_ylabel("samples/s")
    tops = [v for line in lines for p in line.points for v in (p.value, p.high) if v is not None]
    axes.set_ylim(0, 1.15 * max(tops, default=1.0))
    labels = []
    for index, line in enumerate(lines):
        look = canvas.style(index)
        canvas.series(axes, line, **look, linewidth=1.8, markersize=7)
        canvas.dots(axes, line, runs, look["color"])
        for place, point in enumerate(line.points):
            if point.failed:
                # A cross at the lower edge. Of adjacent ones with one status the last is labelled.
                following = line.points[place + 1].status if place + 1 < len(line.points) else ""
                word = "" if following == point.status else text.STATUS_WORDS[point.status]
                at = place, (0.04 + 0.09 * index) * axes.get_ylim()[1]
                axes.plot(*at, "x", color=look["color"], markersize=8, markeredgewidth=2)
                canvas.label(axes, word, at, (7, 0), color=look["color"])
        if line.valid:
            alone = len(lines) == 1 and not line.published
            name = "measured" if alone else _name(settings, line, lines)
            labels.append((line.valid[-1].value or 0.0, name, look["color"]))
    canvas.end_labels(axes, len(lines[0].points) - 0.7, labels)


def _name(settings: PageSettings, line: Line, lines: Sequence[Line]) -> str:
    """The words that distinguish a line in its panel; for published numbers also the device."""
    if line.published:
        return line_name(settings, line, lines).replace(", ", ",\n")
    return text.levels_text(differing(settings, line.others, *lines)).replace(", ", ",\n")
