"""Throughput at the smallest batch and at the largest that fits, and that batch, by model size."""

from collections.abc import Callable, Sequence
from typing import Any

from feedrate.config.values import level_text
from feedrate.report import text
from feedrate.report.context import PageSettings
from feedrate.report.figures import _canvas as canvas
from feedrate.report.lines import Line, ladder_lines
from feedrate.report.rows import Inputs

KINDS = {"reach": 80}

WIDE = 20
"""The ratio of the largest to the smallest value from which the scale is logarithmic."""

Height = Callable[[Line], float | None]


def reach(settings: PageSettings, inputs: Inputs) -> canvas.Figure:
    """Three panels for each device, with marks in groups by the first of the other factors. A
    missing mark is a setting that could not be trained."""
    factor = settings.factor
    cells = inputs.cells(settings.study)
    fitting = {
        device: [line for line in ladder_lines(settings, cells, factor, device) if line.valid]
        for device in settings.measured
    }
    panels = [
        (f"{settings.label(device)}: {title}", unit, lines, height)
        for device, lines in fitting.items()
        for title, unit, height in _measures(settings)
        if lines
    ]
    if not panels:
        return canvas.statement("No cell has a valid result, so there is nothing to draw.")
    figure, all_axes = canvas.new(0.5 + 2.2 * len(panels), len(panels))
    for axes, (title, unit, lines, height) in zip(all_axes, panels, strict=True):
        axes.set_title(title)
        axes.set_ylabel(unit)
        _marks(axes, lines, height)
    handles, names = all_axes[0].get_legend_handles_labels()
    figure.legend(handles, names, ncols=min(4, len(names)), loc="outside upper left", frameon=False)
    stated = [  # about the source's bars, which have no printed numbers
        f"{text.levels_text(row.levels)}: {text.exact(row.value)} {row.unit} ({row.protocol})"
        for row in settings.published
        if row.headline
    ]
    canvas.note(figure, [f"Stated by {settings.origin.title}:" * bool(stated), *stated])
    return figure


def _measures(settings: PageSettings) -> list[tuple[str, str, Height]]:
    """The title, the unit and the value of each panel."""
    factor, label = settings.factor, settings.factor_label(settings.factor)
    smallest = settings.factors[factor].levels[0]

    def at_smallest(line: Line) -> float | None:
        return next((p.value for p in line.valid if p.levels[factor] == smallest), None)

    def largest(line: Line) -> float | None:
        level = line.valid[-1].levels[factor]
        return float(level) if isinstance(level, int | float) else None

    return [
        (f"{label} {smallest}", "samples/s", at_smallest),
        (f"the largest {label} that fits", "samples/s", lambda line: line.valid[-1].value),
        (f"that {label}", label, largest),
    ]


def _marks(axes: canvas.Axes, mine: Sequence[Line], height: Height) -> None:
    """A group for each level of the first other factor, a mark for each of the rest."""
    levels = [[level_text(level) for level in line.others.values()] or [""] for line in mine]
    split = [(first, ", ".join(rest)) for first, *rest in levels]
    groups, series = (list(dict.fromkeys(names)) for names in zip(*split, strict=True))
    width = 0.8 / len(series)
    seen = [value for value in map(height, mine) if value]
    if max(seen, default=1.0) > WIDE * min(seen, default=1.0):
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:,g}")
    for index, name in enumerate(series):
        look = canvas.style(index)
        points = [
            (groups.index(group) + (index + 0.5) * width - 0.4, value)
            for line, (group, own) in zip(mine, split, strict=True)
            if own == name and (value := height(line))
        ]
        places, values = [place for place, _ in points], [value for _, value in points]
        label = name or "all"
        axes.plot(places, values, **look | {"linestyle": ""}, markersize=7, label=label)
        rotation = 90 if len(mine) > canvas.FEW else 0
        above: dict[str, Any] = {"ha": "center", "va": "bottom", "rotation": rotation}
        for place, value in points:
            number = f"{value:.3g}" if value < 1000 else f"{value:,.0f}"
            canvas.label(axes, number, (place, value), (0, 6), fontsize=8, **above)
    axes.set_xticks(range(len(groups)), groups)
    axes.set_xlim(-0.6, max(len(groups) - 0.4, 1.6))
    low, high = axes.get_ylim()  # with room above the highest mark for its number
    logarithmic = axes.get_yscale() == "log"
    axes.set_ylim(*(low, high * (high / low) ** 0.4) if logarithmic else (0, 1.3 * high))
    axes.tick_params(axis="x", length=0)
