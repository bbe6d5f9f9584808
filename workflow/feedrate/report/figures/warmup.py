"""The effect of leaving out warm-up steps on the throughput that a run reports."""

import math
from collections.abc import Sequence

from matplotlib.figure import Figure

from feedrate.jobs.events import Step
from feedrate.report.figures import _canvas as canvas
from feedrate.report.lines import cell_names
from feedrate.report.params import PageSettings
from feedrate.report.rows import Inputs, valid_traces

NEEDS = ("runs",)
ORDER = 230

LINES = 7
"""The number of cells shown: those with the largest effect."""


@canvas.as_svg
def render(settings: PageSettings, inputs: Inputs) -> Figure:
    """One line for each cell, from its first valid run: the rate after k steps, over k."""
    found = valid_traces(inputs, settings.study)
    curves = {trace.run.key: curve for trace in found if (curve := shares(trace.steps))}
    if not curves:
        return canvas.statement("No run has a valid result, so there are no steps to leave out.")
    strongest = sorted(curves, key=lambda key: curves[key][0])[:LINES]
    names = cell_names(settings, [trace.run for trace in found])
    columns = canvas.legend_columns([names[key] for key in strongest])
    lines = math.ceil(len(strongest) / columns)
    figure, (axes,) = canvas.new(3.2 + canvas.LEGEND_LINE_IN * lines)
    for index, key in enumerate(strongest):
        curve = [100 * share for share in curves[key]]
        look = canvas.style(index).line
        axes.plot(range(len(curve)), curve, **look, markersize=5, label=names[key])
    axes.axhline(100, color=canvas.GREY, linewidth=1)
    part = f" (the {LINES} of {len(curves)} cells with the largest effect)"
    axes.set_xlabel("first steps left out" + part * (len(curves) > LINES))
    axes.set_ylabel("throughput, % of the reported value")
    figure.legend(**canvas.LEGEND, ncols=columns)
    return figure


def shares(steps: Sequence[Step]) -> list[float]:
    """For k = 0, 1, … warm-up steps left out: the rate of the rest over the protocol's own.

    Rates are samples over the sum of step times; a run that does not log its samples has none.
    """
    warm = sum(step.warmup for step in steps)
    rates = []
    for left_out in range(warm + 1):
        rest = steps[left_out:]
        seconds = sum(step.step_s for step in rest)
        samples = sum(step.samples or 0 for step in rest)
        if not samples or not seconds:
            return []
        rates.append(samples / seconds)
    return [rate / rates[-1] for rate in rates]
