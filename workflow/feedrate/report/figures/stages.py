"""The time of a step's samples from the files to the device, by stage: a stacked bar per cell."""

import textwrap
from collections.abc import Sequence
from typing import Any

from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from feedrate.report import text
from feedrate.report.context import PageSettings
from feedrate.report.figures import _canvas as canvas
from feedrate.report.lines import short_names
from feedrate.report.rows import CellRow, Inputs
from feedrate.results.schema import FEEDING

KINDS = {"stages": 126}

COLORS = (
    *(canvas.PURPLE, canvas.RED, canvas.BLUE, canvas.SKY),
    *(canvas.BLACK, canvas.GREEN, canvas.ORANGE, canvas.LIGHT),
)
"""Of the stages in `FEEDING`; every second one is hatched, too."""
LOOKS: dict[str, dict[str, Any]] = {
    stage: {"facecolor": color, "edgecolor": "white", "hatch": "////" * (number % 2)}
    for number, (stage, color) in enumerate(zip(FEEDING, COLORS, strict=True))
}


def stages(settings: PageSettings, inputs: Inputs) -> canvas.Figure:
    """One panel for each device; a bar is the time of all the processes of a rank."""
    cells = [cell for cell in inputs.cells(settings.study) if any(_times(cell).values())]
    if not cells:
        return canvas.statement("No cell has times by stage, so there is nothing to draw.")
    figure, panels = canvas.bar_panels(settings, cells, 1.2)
    for axes, mine in panels:
        _panel(axes, mine)
    shown = [stage for stage in FEEDING if any(_times(cell)[stage] for cell in cells)]
    step = Line2D([], [], **canvas.TICK)
    names = [stage.replace("_", " ") for stage in shown]
    looks = [Patch(**LOOKS[stage]) for stage in shown]
    figure.legend([*looks, step], [*names, "median step"], **canvas.LEGEND, ncols=4)
    return figure


def _panel(axes: canvas.Axes, cells: Sequence[CellRow]) -> None:
    names = short_names(cells)
    totals = [sum(_times(cell).values()) for cell in cells]
    longest = max(*totals, *(cell.step_time_median_s or 0.0 for cell in cells))
    scale, unit = (1000, "ms") if longest < 2 else (1, "s")
    for place, (cell, total) in enumerate(zip(cells, totals, strict=True)):
        left = 0.0
        for stage, seconds in _times(cell).items():
            axes.barh(place, scale * seconds, 0.62, left, **LOOKS[stage])
            left += scale * seconds
        step_s = cell.step_time_median_s or 0.0
        axes.plot(scale * step_s, place, markeredgewidth=2, **canvas.TICK)
        end = scale * max(total, step_s)
        missing = [stage.replace("_", " ") for stage in cell.stage_not_split.split(";") if stage]
        words = text.seconds(total) + (f"; step {text.seconds(step_s)}" if step_s else "")
        words += f"; not split: {', '.join(missing)}" if missing else ""
        canvas.label(axes, textwrap.fill(words, 30), (end, place), fontsize=8)
    canvas.row_axis(axes, [names[cell.cell] for cell in cells])
    axes.set_xlim(0, 1.85 * scale * longest)
    axes.set_xlabel(f"time of a step's samples in each stage ({unit})")


def _times(cell: CellRow) -> dict[str, float]:
    """Seconds in a step by stage; 0 where there is none."""
    return {stage: getattr(cell, f"stage_{stage}_s") or 0.0 for stage in FEEDING}
