"""The time of a step by cell: waiting for data, and the rest."""

from collections.abc import Mapping, Sequence
from statistics import median

from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from feedrate.report import text
from feedrate.report.context import PageSettings
from feedrate.report.figures import _canvas as canvas
from feedrate.report.lines import short_names
from feedrate.report.rows import CellRow, Inputs, Key, RunRow

KINDS = {"step_time": 120}

LETTER_IN, LABEL_IN = 0.08, 1.3
"""The width of a letter of a cell's name, and of the label behind a bar."""


def step_time(settings: PageSettings, inputs: Inputs) -> canvas.Figure:
    """One panel for each device and one bar for each cell that was tried."""
    cells = inputs.cells(settings.study)
    good = {cell.device for cell in cells if cell.status == "ok"}
    tried = [c for c in cells if c.status != "unsupported" and c.device in good]
    if not tried:
        return canvas.statement("No cell has a valid result, so there is no step time to draw.")
    figure, panels = canvas.bar_panels(settings, tried, 0.4)
    runs = [run for run in inputs.runs(settings.study) if run.status == "ok"]
    for axes, mine in panels:
        _panel(axes, mine, text.grouped(runs, lambda run: run.key))
    looks = [Patch(**canvas.WAITING), Patch(color=canvas.BLUE), Line2D([], [], **canvas.TICK)]
    names = ["waiting for data", "all the rest", "95th percentile of step times"]
    figure.legend(looks, names, **canvas.LEGEND, ncols=3)
    return figure


def _panel(
    axes: canvas.Axes, cells: Sequence[CellRow], runs: Mapping[Key, Sequence[RunRow]]
) -> None:
    names = short_names(cells)
    longest = max(_mean_step(run) for cell in cells for run in runs.get(cell.key, ()))
    scale, unit = (1000, "ms") if longest < 2 else (1, "s")
    for place, cell in enumerate(cells):
        mine = runs.get(cell.key)
        if not mine:
            axes.text(0, place, f" {text.STATUS_WORDS[cell.status]}", va="center", style="italic")
            continue
        step = median(_mean_step(run) for run in mine)
        waits = median(run.data_wait_share or 0.0 for run in mine)
        slow = [run.step_time_p95_s for run in mine if run.step_time_p95_s is not None]
        wait, rest = scale * step * waits, scale * step * (1 - waits)
        axes.barh(place, wait, 0.62, **canvas.WAITING)
        axes.barh(place, rest, 0.62, wait, facecolor=canvas.BLUE, edgecolor="white")
        p95 = median(slow) if slow else 0.0
        if slow:
            axes.plot(scale * p95, place, markeredgewidth=2, **canvas.TICK)
        words = f"{text.seconds(step)}, waits {text.share(waits)}"
        canvas.label(axes, words, (scale * max(step, p95), place), fontsize=9)
    canvas.row_axis(axes, [names[cell.cell] for cell in cells])
    names_in = LETTER_IN * max(len(names[cell.cell]) for cell in cells)
    share = max(0.2, 1 - LABEL_IN / max(LABEL_IN, canvas.WIDTH_IN - names_in))
    axes.set_xlim(0, axes.get_xlim()[1] / share)
    axes.set_xlabel(f"time of an optimizer step ({unit})")


def _mean_step(run: RunRow) -> float:
    if run.wall_s is not None and run.steps:
        return run.wall_s / run.steps
    return run.step_time_median_s or 0.0
