"""What happens in the steps of runs: their times, the wait for data in them, and the loss."""

from statistics import quantiles

from feedrate.report import chart, text
from feedrate.report.context import PageSettings
from feedrate.report.lines import short_names
from feedrate.report.rows import Inputs, Key, Trace, traces

KINDS = {"loss": 210, "steps": 220}

PANELS = 8
"""The number of cells whose steps are shown; the axis label gives the number of all cells."""
HALF = 28
"""Letters of a name that fit into half of the legend's width."""


def steps(settings: PageSettings, inputs: Inputs) -> chart.Picture:
    """Every step of a run, with those left out. One panel for each cell: its first valid run."""
    first: dict[Key, Trace] = {}
    for trace in traces(inputs, settings.study):
        if trace.run.status == "ok":
            first.setdefault(trace.run.key, trace)
    shown = list(first.values())[:PANELS]
    names = short_names(trace.run for trace in shown)
    panels = []
    for trace in shown:
        run = trace.run
        name = f"{settings.label(run.device)}, {names[run.cell]}, repeat {run.repeat}"
        panels.append(_steps(trace, name))
    if panels:
        part = f" (the first {PANELS} of {text.counted(len(first), 'cell')})"
        panels[-1].place_label = "optimizer step" + (part if len(first) > PANELS else "")
    return chart.Picture(
        panels,
        "No run has a valid result, so there are no steps to draw.",
        key_columns=3,
    )


def _steps(trace: Trace, title: str) -> chart.Panel:
    times = [chart.Mark(step.step, 1000 * step.step_s) for step in trace.steps]
    waits = [chart.Mark(step.step, 1000 * step.data_wait_s) for step in trace.steps]
    warm = [step.step for step in trace.steps if step.warmup]
    # A first step that compiles would flatten the others: it is cut off, and its time is written.
    timed = [1000 * step.step_s for step in trace.steps if not step.warmup]
    timed = timed or [1000 * step.step_s for step in trace.steps]
    usual = quantiles(timed, n=20)[-1] if len(timed) > 1 else timed[0]
    highest, first = 1.6 * max(usual, max(timed) / 1.5), trace.steps[0]
    labels = []
    if 1000 * first.step_s > highest:
        words = f"step {first.step}: {text.seconds(first.step_s)} ↑"
        look = {"va": "top", "bbox": chart.PAPER}
        labels.append(chart.Label(0.7, 0.97 * highest, words, (0, 0), look))
    line = {"color": chart.BLUE, "marker": ".", "linestyle": "-", "linewidth": 1.2}
    return chart.Panel(
        series=[
            chart.Series(waits, chart.WAITING, "waiting for data", bars=True),
            chart.Series(times, line, "the whole step"),
        ],
        title=title,
        value_label="ms",
        limits=(0, highest),
        span=(0.5, warm[-1] + 0.5, "warm-up, left out") if warm else None,
        labels=labels,
        height_in=1.65,
    )


def loss(settings: PageSettings, inputs: Inputs) -> chart.Picture:
    """The training loss of all cells on one axis. One curve for each ok run; repeats of a cell
    share a style, only the first has markers."""
    found = [
        trace
        for trace in traces(inputs, settings.study)
        if trace.run.status == "ok" and any(step.loss is not None for step in trace.steps)
    ]
    runs = [run for run, _ in found]
    short, several = short_names(runs), len({run.device for run in runs}) > 1
    names = {
        r.key: (f"{settings.label(r.device)}: " if several else "") + short[r.cell] for r in runs
    }
    keys = list(names)
    few = len(keys) <= chart.FEW  # a legend with more would hide the curves
    columns = 2 if max(map(len, names.values()), default=0) <= HALF else 1
    first = {trace.run.key: trace for trace in reversed(found)}
    series = []
    for trace in found:
        key = trace.run.key
        points = [chart.Mark(step.step, step.loss) for step in trace.steps if step.loss is not None]
        index, every = keys.index(key), max(1, len(points) // 8)
        look = chart.style(index, markevery=(index % every, every), markersize=5, linewidth=1.4)
        if trace is not first[key]:
            look = {**look, "marker": "", "linewidth": 0.8, "alpha": 0.6}
        series.append(chart.Series(points, look, names[key] if few and trace is first[key] else ""))
    panel = chart.Panel(
        series=series, place_label="optimizer step", value_label="training loss", height_in=3.2
    )
    many = f"{text.counted(len(keys), 'cell')}, too many to name here."
    return chart.Picture(
        [panel] if found else [],
        "No valid run logged a loss.",
        [] if few else [many],
        key_columns=columns if few else 0,
    )
