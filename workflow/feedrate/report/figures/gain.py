"""The effect of training: the share of captions chosen correctly before and after, and chance."""

from feedrate.report import text
from feedrate.report.figures import _canvas as canvas
from feedrate.report.params import PageSettings
from feedrate.report.rows import Inputs
from feedrate.report.scores import MATCHING, MOMENTS, SPLITS, Score, cells_of, pick

NEEDS = ("scores",)
ORDER = 20

ROW_IN = 0.62  # of the two points of a cell


def render(settings: PageSettings, inputs: Inputs) -> canvas.Figure:
    """Two points for each cell and split, before and after training, each with its interval."""
    found = [row for row in inputs.scores(settings.study) if row.metric == MATCHING]
    cells = [cell for device in settings.measured for cell in cells_of(found, device)]
    if not any(row.value is not None for row in found):
        return canvas.statement("No model was asked to choose the right caption of five.")
    height_in = ROW_IN * len(cells) * len(SPLITS) + 1.3
    figure, panels = canvas.new(height_in, len(SPLITS), sharex=True)
    several = len(settings.measured) > 1
    names = [
        f"{settings.label(cell.device)}: " * several + text.values_text(cell.levels)
        for cell in cells
    ]
    chance = next((row.chance for row in found if row.chance is not None), None)
    for axes, split in zip(panels, SPLITS, strict=True):
        axes.set_title(split)
        if chance is not None:
            axes.axvline(100 * chance, color=canvas.GREY, linestyle=":", label="by chance")
        for place, cell in enumerate(cells):
            for number, moment in enumerate(MOMENTS):
                if score := pick(found, cell, split, MATCHING, moment):
                    label = f"{moment} training" if place == 0 else None
                    y = place + 0.22 * (number - 0.5)
                    _point(axes, y, score, canvas.style(1 - number), label)
        canvas.row_axis(axes, names)
        axes.set_xlim(0, 100)
    panels[-1].set_xlabel("right caption of five chosen (%)")
    figure.legend(*panels[0].get_legend_handles_labels(), ncols=3, **canvas.LEGEND)
    return figure


def _point(
    axes: canvas.Axes, y: float, score: Score, look: canvas.Style, label: str | None
) -> None:
    value = 100 * score.value
    low, high = (value if end is None else 100 * end for end in (score.low, score.high))
    mark = look | {"linestyle": "none", "markersize": 6, "capsize": 3}
    axes.errorbar([value], [y], xerr=[[value - low], [high - value]], label=label, **mark)
    canvas.label(axes, text.share(score.value), (high, y), fontsize=9, color=look["color"])
