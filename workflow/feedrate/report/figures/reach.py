"""Throughput at the smallest and at the largest batch that fits, and that batch, by size."""

from collections.abc import Callable, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from feedrate.config.values import Level, level_text
from feedrate.report import text
from feedrate.report.figures import canvas
from feedrate.report.gains import Climb, climbs
from feedrate.report.grid import factor_label, main_factor
from feedrate.report.rows import Inputs
from feedrate.report.settings import FigureSettings

WIDE = 20
"""Sizes whose numbers are so far apart stand on a logarithmic scale."""

Height = Callable[[Climb], float | None]


def draw(settings: FigureSettings, inputs: Inputs) -> Figure:
    """Three panels for each device; marks in groups by the first of the other factors.

    A mark that is missing is a setting that could not be trained.
    """
    factor = main_factor(settings, settings.figure.x)
    label = factor_label(settings, factor)
    smallest = settings.factors[factor].levels[0]
    cells = inputs.cells(settings.study)
    panels: list[tuple[str, str, list[Climb], Height]] = []
    for device in settings.measured:
        mine = [one for one in climbs(settings, cells, factor, device) if one.largest]
        if mine:
            name = settings.label(device)
            panels += [
                (f"{name}: {label} {smallest}", "samples/s", mine, _at(factor, smallest)),
                (f"{name}: the largest {label} that fits", "samples/s", mine, _at_largest),
                (f"{name}: that {label}", label, mine, lambda c: _largest(c, factor)),
            ]
    if not panels:
        return canvas.statement(f"No {label} fitted, so there is nothing to draw.")
    figure, all_axes = canvas.new(0.5 + 2.2 * len(panels), len(panels))
    for axes, (title, unit, mine, height) in zip(all_axes, panels, strict=True):
        axes.set_title(title)
        axes.set_ylabel(unit)
        _marks(axes, mine, height)
    handles, names = all_axes[0].get_legend_handles_labels()
    figure.legend(handles, names, ncols=min(4, len(names)), loc="outside upper left", frameon=False)
    canvas.note(figure, _stated(settings))
    return figure


def _marks(axes: Axes, mine: Sequence[Climb], height: Height) -> None:
    """A group for each level of the first other factor, a mark for each of the rest."""
    split = [_split(climb) for climb in mine]
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
            for climb, (group, own) in zip(mine, split, strict=True)
            if own == name and (value := height(climb))
        ]
        places, values = [place for place, _ in points], [value for _, value in points]
        label = name or "all"
        axes.plot(places, values, look.marker, color=look.color, markersize=7, label=label)
        for place, value in points:
            axes.annotate(
                f"{value:.3g}" if value < 1000 else f"{value:,.0f}",
                (place, value),
                xytext=(0, 6),
                textcoords="offset points",
                ha="center",
                va="bottom",
                rotation=90 if len(mine) > canvas.FEW else 0,
                fontsize=8,
            )
    axes.set_xticks(range(len(groups)), groups)
    axes.set_xlim(-0.6, max(len(groups) - 0.4, 1.6))
    _give_room(axes)
    axes.tick_params(axis="x", length=0)


def _give_room(axes: Axes) -> None:
    """Above the highest mark, for its number; from zero on, where the scale has one."""
    low, high = axes.get_ylim()
    if axes.get_yscale() == "log":
        axes.set_ylim(low, high * (high / low) ** 0.4)
    else:
        axes.set_ylim(0, 1.3 * high)


def _split(climb: Climb) -> tuple[str, str]:
    first, *others = [level_text(level) for level in climb.line.rest.values()] or [""]
    return first, ", ".join(others)


def _at(factor: str, level: Level) -> Height:
    def height(climb: Climb) -> float | None:
        return next((s.value for s in climb.fitting if s.levels[factor] == level), None)

    return height


def _at_largest(climb: Climb) -> float | None:
    return climb.largest.value if climb.largest else None


def _largest(climb: Climb, factor: str) -> float | None:
    level = climb.largest.levels[factor] if climb.largest else None
    return float(level) if isinstance(level, int | float) else None


def _stated(settings: FigureSettings) -> list[str]:
    """What the source states of its own bars, which it prints without numbers."""
    rows = [
        f"{text.levels_text(row.levels)}: {text.exact(row.value)} {row.unit} ({row.protocol})"
        for row in settings.published
        if row.headline
    ]
    if not rows:
        return []
    return [f"Stated by {settings.origin.title}:", *rows]
