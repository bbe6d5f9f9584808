"""Every step of the runs: its time, the wait for data in it, and the steps left out."""

from statistics import quantiles
from typing import Any

from feedrate.report import text
from feedrate.report.context import PageSettings
from feedrate.report.figures import _canvas as canvas
from feedrate.report.lines import short_names
from feedrate.report.rows import Inputs, Key, Trace, traces

KINDS = {"steps": 220}

PANELS = 8
"""The number of cells shown; the axis label gives the number of all cells."""


def steps(settings: PageSettings, inputs: Inputs) -> canvas.Figure:
    """One panel for each cell: its first valid run."""
    first: dict[Key, Trace] = {}
    for trace in traces(inputs, settings.study):
        if trace.run.status == "ok":
            first.setdefault(trace.run.key, trace)
    shown = list(first.values())[:PANELS]
    if not shown:
        return canvas.statement("No run has a valid result, so there are no steps to draw.")
    figure, panels = canvas.new(0.7 + 1.65 * len(shown), len(shown))
    names = short_names(trace.run for trace in shown)
    for axes, trace in zip(panels, shown, strict=True):
        run = trace.run
        axes.set_title(f"{settings.label(run.device)}, {names[run.cell]}, repeat {run.repeat}")
        _panel(axes, trace)
    part = f" (the first {PANELS} of {text.counted(len(first), 'cell')})"
    panels[-1].set_xlabel("optimizer step" + part * (len(first) > PANELS))
    figure.legend(*panels[0].get_legend_handles_labels(), **canvas.LEGEND, ncols=3)
    return figure


def _panel(axes: canvas.Axes, trace: Trace) -> None:
    steps = [step.step for step in trace.steps]
    times = [1000 * step.step_s for step in trace.steps]
    waits = [1000 * step.data_wait_s for step in trace.steps]
    axes.bar(steps, waits, 0.8, label="waiting for data", linewidth=0, **canvas.WAITING)
    axes.plot(steps, times, ".-", color=canvas.BLUE, linewidth=1.2, label="the whole step")
    warm = [step.step for step in trace.steps if step.warmup]
    if warm:
        look: dict[str, Any] = {"color": canvas.LIGHT, "linewidth": 0, "zorder": 0}
        axes.axvspan(0.5, warm[-1] + 0.5, label="warm-up, left out", **look)
    axes.set_xlim(0.5, steps[-1] + 0.5)
    axes.set_ylabel("ms")
    # A first step that compiles would flatten the others: it is cut off, and its time is written.
    timed = [t for t, step in zip(times, trace.steps, strict=True) if not step.warmup] or times
    usual = quantiles(timed, n=20)[-1] if len(timed) > 1 else timed[0]
    top = 1.6 * max(usual, max(timed) / 1.5)
    axes.set_ylim(0, top)
    if times[0] > top:
        words = f"step {trace.steps[0].step}: {text.seconds(times[0] / 1000)} ↑"
        canvas.label(axes, words, (0.7, 0.97 * top), (0, 0), va="top", bbox=canvas.PAPER)
