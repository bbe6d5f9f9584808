"""Training loss of all cells on one axis: settings of the loader must not change the training."""

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from feedrate.report import text
from feedrate.report.figures import canvas
from feedrate.report.grid import short_names
from feedrate.report.rows import Inputs
from feedrate.report.settings import FigureSettings
from feedrate.report.steps import Trace, traces

MANY = 12
"""With more cells than this the legend would hide the curves."""


def draw(settings: FigureSettings, inputs: Inputs) -> Figure:
    """One curve a run; the repeats of a cell share its colour and dashes, the first bears marks."""
    found = [t for t in traces(inputs, settings.study) if any(s.loss is not None for s in t.steps)]
    if not found:
        return canvas.statement("No run has logged a loss.")
    figure, (axes,) = canvas.new(3.6)
    names = short_names(trace.run for trace in found)
    several = len({trace.run.device for trace in found}) > 1
    keys = list(dict.fromkeys((t.run.device, t.run.cell) for t in found))
    seen: set[tuple[str, str]] = set()
    for trace in found:
        key = (trace.run.device, trace.run.cell)
        name = names[trace.run.cell]
        label = f"{settings.label(trace.run.device)}: {name}" if several else name
        _curve(axes, trace, keys.index(key), label if key not in seen else "")
        seen.add(key)
    axes.set_xlabel("optimizer step")
    axes.set_ylabel("training loss")
    axes.grid(axis="x", visible=True)
    if len(keys) <= MANY:
        _, labels = axes.get_legend_handles_labels()
        figure.legend(**canvas.LEGEND, ncols=2 if max(map(len, labels)) <= 28 else 1)
    else:
        canvas.note(figure, [f"{text.count(len(keys), 'cell')}, too many to name here."])
    return figure


def _curve(axes: Axes, trace: Trace, index: int, label: str) -> None:
    look = canvas.style(index)
    points = [(step.step, step.loss) for step in trace.steps if step.loss is not None]
    every = max(1, len(points) // 8)
    axes.plot(
        *zip(*points, strict=True),
        color=look.color,
        linestyle=look.dash,
        marker=look.marker if label else "",
        markevery=(index % every, every),
        markersize=5,
        linewidth=1.4 if label else 0.8,
        alpha=1.0 if label else 0.6,
        label=label or None,
    )
