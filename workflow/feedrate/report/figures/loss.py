"""The training loss of all cells on one axis, without the runs that do not count."""

import math

from matplotlib.ticker import MaxNLocator

from feedrate.report import text
from feedrate.report.context import PageSettings
from feedrate.report.figures import _canvas as canvas
from feedrate.report.lines import short_names
from feedrate.report.rows import Inputs, Trace, traces

KINDS = {"loss": 210}

HALF = 28
"""Letters of a name that fit into half of the legend's width."""


def loss(settings: PageSettings, inputs: Inputs) -> canvas.Figure:
    """One curve for each ok run; repeats of a cell share a style, only the first has markers."""
    found = [
        trace
        for trace in traces(inputs, settings.study)
        if trace.run.status == "ok" and any(step.loss is not None for step in trace.steps)
    ]
    if not found:
        return canvas.statement("No valid run logged a loss.")
    runs = [run for run, _ in found]
    short, several = short_names(runs), len({run.device for run in runs}) > 1
    names = {r.key: f"{settings.label(r.device)}: " * several + short[r.cell] for r in runs}
    keys = list(names)
    columns = 2 if max(map(len, names.values())) <= HALF else 1
    lines = math.ceil(len(keys) / columns) if len(keys) <= canvas.FEW else 1
    figure, (axes,) = canvas.new(3.2 + canvas.LEGEND_LINE_IN * lines)
    first = {trace.run.key: trace for trace in reversed(found)}
    for trace in found:
        key = trace.run.key
        _curve(axes, trace, keys.index(key), names[key] if trace is first[key] else "")
    axes.set_xlabel("optimizer step")
    axes.xaxis.set_major_locator(MaxNLocator("auto", steps=[1, 2, 2.5, 5, 10], integer=True))
    axes.set_ylabel("training loss")
    axes.grid(axis="x", visible=True)
    if len(keys) <= canvas.FEW:  # a legend with more would hide the curves
        figure.legend(**canvas.LEGEND, ncols=columns)
    else:
        canvas.note(figure, [f"{text.counted(len(keys), 'cell')}, too many to name here."])
    return figure


def _curve(axes: canvas.Axes, trace: Trace, index: int, label: str) -> None:
    look = canvas.style(index)
    points = [(step.step, step.loss) for step in trace.steps if step.loss is not None]
    every = max(1, len(points) // 8)
    axes.plot(
        *zip(*points, strict=True),
        **look if label else look | {"marker": ""},
        markevery=(index % every, every),
        markersize=5,
        linewidth=1.4 if label else 0.8,
        alpha=1.0 if label else 0.6,
        label=label or None,
    )
