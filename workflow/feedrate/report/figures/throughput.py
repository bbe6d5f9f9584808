"""Throughput along one factor: a panel for each device here, and one for the published numbers."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import compress

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from feedrate.config.values import level_text
from feedrate.report import text
from feedrate.report.figures import canvas
from feedrate.report.grid import (
    Line,
    factor_label,
    lacking_text,
    main_factor,
    measured_lines,
    published_lines,
    repeats,
    rest_text,
    tried,
)
from feedrate.report.rows import Inputs, RunRow
from feedrate.report.settings import FigureSettings


def draw(settings: FigureSettings, inputs: Inputs) -> Figure:
    """Panels of their own scales: a published eight-card server is not a laptop."""
    factor = main_factor(settings, settings.figure.x)
    cells = inputs.cells(settings.study)
    runs = inputs.runs(settings.study)
    ours = tried(measured_lines(settings, cells, factor))
    theirs = [line for line in published_lines(settings, factor) if line.has_numbers]
    panels = []
    gone = []
    for device in settings.measured:
        lines = _supported([line for line in ours if line.device == device])
        if any(line.has_numbers for line in lines):
            panels.append((f"Here: {settings.label(device)}", lines))
        else:
            gone.append(f"No cell ended well on {settings.label(device)}.")
    if theirs:
        panels.append((f"Published: {settings.origin.title}", theirs))
    if not panels:
        return canvas.statement(
            "No cell ended well and nothing is published, so there is nothing to draw."
        )
    figure, all_axes = canvas.new(0.4 + 2.9 * len(panels), len(panels))
    for axes, (title, lines) in zip(all_axes, panels, strict=True):
        axes.set_title(canvas.wrap(title, 52))
        axes.set_xlabel(factor_label(settings, factor))
        _panel(axes, settings, lines, factor, runs)
    lacking = [lacking_text(settings, device) for device in settings.measured]
    canvas.note(figure, [*gone, *lacking])
    return figure


def _supported(lines: Sequence[Line]) -> list[Line]:
    """The lines without the levels that a device supports in none of them: the note names those."""
    kept = [
        any(spot.status != "unsupported" for spot in spots)
        for spots in zip(*(line.spots for line in lines), strict=True)
    ]
    return [replace(line, spots=list(compress(line.spots, kept))) for line in lines]


def _panel(
    axes: Axes,
    settings: FigureSettings,
    lines: Sequence[Line],
    factor: str,
    runs: Sequence[RunRow],
) -> None:
    levels = [level_text(spot.levels[factor]) for spot in lines[0].spots]
    canvas.level_axis(axes, levels)
    axes.set_ylabel("samples/s")
    tops = [v for line in lines for s in line.spots for v in (s.value, s.high) if v is not None]
    axes.set_ylim(0, 1.15 * max(tops, default=1.0))
    labels = []
    for index, line in enumerate(lines):
        look = canvas.style(index)
        axes.plot(
            *canvas.path(line),
            color=look.color,
            marker=look.marker,
            linestyle=look.dash,
            linewidth=1.8,
            markersize=7,
        )
        for place, spot in enumerate(line.spots):
            canvas.whiskers(axes, place, spot.low, spot.high, look.color)
            canvas.dots(axes, place, repeats(runs, spot), look.color)
            if spot.broke:
                # Of crosses side by side the last one tells, where nothing stands beside it.
                after = line.spots[place + 1].status if place + 1 < len(line.spots) else ""
                word = "" if after == spot.status else text.STATUS_WORDS[spot.status]
                _cross(axes, place, index, word, look.color)
        if line.has_numbers:
            name = _name(settings, line) if len(lines) > 1 else "measured"
            labels.append((line.last, name, look.color))
    canvas.end_labels(axes, len(levels) - 0.7, labels)


def _cross(axes: Axes, place: int, index: int, word: str, color: str) -> None:
    """A cell without a number: a cross at the lower edge, and why."""
    y = (0.04 + 0.09 * index) * axes.get_ylim()[1]
    axes.plot(place, y, "x", color=color, markersize=8, markeredgewidth=2)
    axes.annotate(
        word,
        (place, y),
        xytext=(7, 0),
        textcoords="offset points",
        va="center",
        fontsize=8.5,
        color=color,
    )


def _name(settings: FigureSettings, line: Line) -> str:
    rest = rest_text(settings, line.rest).replace(", ", ",\n")
    if line.published:
        return ",\n".join(filter(None, (settings.label(line.device), rest)))
    return rest or "baseline settings"
