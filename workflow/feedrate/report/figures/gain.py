"""The effect of training: the share of captions chosen correctly before and after, and chance."""

from feedrate.report import text
from feedrate.report.context import PageSettings
from feedrate.report.figures import _canvas as canvas
from feedrate.report.rows import Inputs
from feedrate.report.scores import MATCHING, SPLITS, cells_of, gain_text, pick

KINDS = {"gain": 20}

ROW_IN = 0.62  # of the two points of a cell


def gain(settings: PageSettings, inputs: Inputs) -> canvas.Figure:
    """Two points for each cell and split, before and after training."""
    found = [row for row in inputs.scores(settings.study) if row.score.metric == MATCHING]
    cells = [cell for device in settings.measured for cell in cells_of(found, device)]
    if not cells:
        return canvas.statement("No model was asked to choose the right caption of five.")
    height_in = ROW_IN * len(cells) * len(SPLITS) + 1.3
    figure, panels = canvas.new(height_in, len(SPLITS), sharex=True)
    several = len(settings.measured) > 1
    names = [
        f"{settings.label(cell.device)}: " * several + text.values_text(cell.levels)
        for cell in cells
    ]
    chance = next((row.score.chance for row in found if row.score.chance is not None), None)
    for axes, split in zip(panels, SPLITS, strict=True):
        axes.set_title(split)
        if chance is not None:
            axes.axvline(100 * chance, color=canvas.GREY, linestyle=":", label="by chance")
        for place, cell in enumerate(cells):
            score = pick(found, cell, split, MATCHING)
            values = {"before": score.before, "after": score.after} if score else {}
            for number, (moment, value) in enumerate(values.items()):
                if score is None or value is None:
                    continue
                label = f"{moment} training" if place == 0 else None
                y, look = place + 0.22 * (number - 0.5), canvas.style(1 - number)
                mark = look | {"linestyle": "none", "markersize": 6}
                axes.plot([100 * value], [y], label=label, **mark)
                points, interval = gain_text(score)
                gain = text.with_remark(f", {points} points", interval) * bool(number)
                shown = f"{text.share(value)}{gain}"
                canvas.label(axes, shown, (100 * value, y), fontsize=9, color=look["color"])
        canvas.row_axis(axes, names)
        axes.set_xlim(0, 100)
    panels[-1].set_xlabel("right caption of five chosen (%)")
    figure.legend(*panels[0].get_legend_handles_labels(), ncols=3, **canvas.LEGEND)
    return figure
