"""Throughput at the smallest batch and at the largest that fits, and that batch, by model size."""

from collections.abc import Callable, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from feedrate.config.values import Level, level_text
from feedrate.report import text
from feedrate.report.figures import _canvas as canvas
from feedrate.report.lines import Line, ladder_lines
from feedrate.report.params import PageSettings
from feedrate.report.rows import Inputs

NEEDS = ("cells", "published")
ORDER = 80

WIDE = 20
"""The ratio of the largest to the smallest value from which the scale is logarithmic."""

Height = Callable[[Line], float | None]


@canvas.as_svg
def render(settings: PageSettings, inputs: Inputs) -> Figure:
    """Three panels for each device, with marks in groups by the first of the other factors.

    A missing mark is a setting that could not be trained.
    """
    factor = settings.factor
    label = settings.factor_label(factor)
    smallest = settings.factors[factor].levels[0]
    cells = inputs.cells(settings.study)
    panels: list[tuple[str, str, list[Line], Height]] = []
    for device in settings.measured:
        mine = [line for line in ladder_lines(settings, cells, factor, device) if line.valid]
        if mine:
            name = settings.label(device)
            panels += [
                (f"{name}: {label} {smallest}", "samples/s", mine, _at(factor, smallest)),
                (
                    f"{name}: the largest {label} that fits",
                    "samples/s",
                    mine,
                    lambda line: line.valid[-1].value,
                ),
                (f"{name}: that {label}", label, mine, lambda line: _largest(line, factor)),
            ]
    if not panels:
        return canvas.statement(f"No {label} fits, so there is nothing to draw.")
    figure, all_axes = canvas.new(0.5 + 2.2 * len(panels), len(panels))
    for axes, (title, unit, mine, height) in zip(all_axes, panels, strict=True):
        axes.set_title(title)
        axes.set_ylabel(unit)
        _marks(axes, mine, height)
    handles, names = all_axes[0].get_legend_handles_labels()
    figure.legend(handles, names, ncols=min(4, len(names)), loc="outside upper left", frameon=False)
    canvas.note(figure, _statements(settings))
    return figure


def _marks(axes: Axes, mine: Sequence[Line], height: Height) -> None:
    """A group for each level of the first other factor, a mark for each of the rest."""
    split = [_split(line) for line in mine]
    groups = list(dict.fromkeys(group for group, _ in split))
    series = list(dict.fromkeys(name for _, name in split))
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
        axes.plot(places, values, look.marker, color=look.color, markersize=7, label=label)
        for place, value in points:
            number = f"{value:.3g}" if value < 1000 else f"{value:,.0f}"
            look_ = {"ha": "center", "va": "bottom", "fontsize": 8}
            rotation = 90 if len(mine) > canvas.FEW else 0
            canvas.label(axes, number, (place, value), (0, 6), rotation=rotation, **look_)
    axes.set_xticks(range(len(groups)), groups)
    axes.set_xlim(-0.6, max(len(groups) - 0.4, 1.6))
    _give_room(axes)
    axes.tick_params(axis="x", length=0)


def _give_room(axes: Axes) -> None:
    """Leave room above the highest mark for its number; a linear scale starts at zero."""
    low, high = axes.get_ylim()
    if axes.get_yscale() == "log":
        axes.set_ylim(low, high * (high / low) ** 0.4)
    else:
        axes.set_ylim(0, 1.3 * high)


def _split(line: Line) -> tuple[str, str]:
    """The group of a line, and its name within the group."""
    first, *others = [level_text(level) for level in line.others.values()] or [""]
    return first, ", ".join(others)


def _at(factor: str, level: Level) -> Height:
    return lambda line: next((p.value for p in line.valid if p.levels[factor] == level), None)


def _largest(line: Line, factor: str) -> float | None:
    level = line.valid[-1].levels[factor]
    return float(level) if isinstance(level, int | float) else None


def _statements(settings: PageSettings) -> list[str]:
    """The published statements about the source's bars, which have no printed numbers."""
    rows = [
        f"{text.levels_text(row.levels)}: {text.exact(row.value)} {row.unit} ({row.protocol})"
        for row in settings.published
        if row.headline
    ]
    return [f"Stated by {settings.origin.title}:", *rows] if rows else []
