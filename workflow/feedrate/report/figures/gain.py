"""What training adds: the share of captions chosen right before and after, with chance."""

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from feedrate.config.values import level_text
from feedrate.report import text
from feedrate.report.figures import canvas
from feedrate.report.qualities import SPLITS, Shown, cells_of, pick
from feedrate.report.rows import Inputs
from feedrate.report.settings import FigureSettings

METRIC = "matching_accuracy"
ROW_IN = 0.62
"""Height of a cell's two bars."""


def draw(settings: FigureSettings, inputs: Inputs) -> Figure:
    """Two points a cell and split, before and after, each with its interval."""
    rows = [row for row in inputs.scores(settings.study) if row.metric == METRIC]
    keys = [cell for device in settings.measured for cell in cells_of(rows, device)]
    if not any(row.value is not None for row in rows):
        return canvas.statement("No model was asked to choose the right caption of five.")
    figure = Figure(
        figsize=(canvas.WIDTH_IN, ROW_IN * len(keys) * len(SPLITS) + 1.3), layout="constrained"
    )
    grid = figure.subplots(len(SPLITS), 1, squeeze=False, sharex=True)[:, 0]
    names = {(r.device, r.cell): ", ".join(map(level_text, r.levels.values())) for r in rows}
    chance = next((row.chance for row in rows if row.chance is not None), None)
    for axes, split in zip(grid, SPLITS, strict=True):
        axes.set_title(split)
        axes.grid(axis="x", visible=True)
        axes.grid(axis="y", visible=False)
        if chance is not None:
            axes.axvline(100 * chance, color=canvas.GREY, linestyle=":", label="by chance")
        for place, key in enumerate(keys):
            for number, moment in enumerate(("before", "after")):
                shown = pick(rows, on=split, metric=METRIC, cell=key, moment=moment)
                label = f"{moment} training" if place == 0 else None
                _point(axes, place + 0.22 * (number - 0.5), shown, number, label)
        labels = [_name(settings, key, names[key]) for key in keys]
        axes.set_yticks(range(len(keys)), labels)
        axes.set_ylim(len(keys) - 0.5, -0.5)
        axes.set_xlim(0, 100)
    grid[-1].set_xlabel("right caption of five chosen (%)")
    handles, names_ = grid[0].get_legend_handles_labels()
    figure.legend(handles, names_, ncols=3, **canvas.LEGEND)
    return figure


def _name(settings: FigureSettings, key: tuple[str, str], levels: str) -> str:
    return levels if len(settings.measured) == 1 else f"{settings.label(key[0])}: {levels}"


def _point(axes: Axes, y: float, shown: Shown | None, number: int, label: str | None) -> None:
    if shown is None or shown.value is None:
        return
    look = canvas.style(1 - number)
    value = 100 * shown.value
    low, high = (value if end is None else 100 * end for end in (shown.low, shown.high))
    axes.errorbar(
        [value],
        [y],
        xerr=[[value - low], [high - value]],
        fmt=look.marker,
        color=look.color,
        markersize=6,
        capsize=3,
        label=label,
    )
    axes.annotate(
        text.share(shown.value),
        (high, y),
        xytext=(6, 0),
        textcoords="offset points",
        va="center",
        fontsize=9,
        color=look.color,
    )
