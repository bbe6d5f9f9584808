"""The steps of runs: where their time goes, and their losses."""

from collections.abc import Mapping, Sequence
from statistics import median
from typing import NamedTuple

from feedrate.report import chart, text
from feedrate.report.chart import Figure, Look, Mark, Panel, Picture, Row, Series
from feedrate.report.rows import CellRow, RunRow
from feedrate.report.study import StudyResults, Trace
from feedrate.results.schema import FEEDING

VISIBLE = 0.02
"""The share of the longest bar from which a stage has a part of its own."""
OTHER = "other"
STAGES = dict(zip((*FEEDING, OTHER), chart.PARTS, strict=True))


def step_time(study: StudyResults) -> Picture | None:
    """The mean time of a step, divided into waiting for data and the rest, and the 95th percentile:
    a bar for each cell of the first screen."""
    panels = []
    for device in study.devices:
        bars = {}
        for cell in study.on_first_screen(device) if study.study.task == "training" else ():
            runs = [run for run in study.runs_of(cell) if run.status == "ok" and run.wall_s]
            if runs and cell.data_wait_share is not None:
                step_s = median(run.wall_s / run.steps for run in runs)
                wait_s = step_s * cell.data_wait_share
                parts = {"waiting for data": wait_s, "the rest": step_s - wait_s}
                words = f"{text.seconds(step_s)}, {text.share(cell.data_wait_share)}"
                bars[cell] = Bar(parts, words, cell.step_time_p95_s)
        if bars:
            looks = {"waiting for data": chart.WAITING, "the rest": chart.PLAIN}
            panels.append(_stacked(study, bars, looks, "mean, waiting", "a step"))
    return Picture(panels) if panels else None


def stages(study: StudyResults) -> Picture | None:
    """The time of a step's samples from the files to the device, by stage, in all processes of a
    rank: a bar for each cell of the first screen."""
    panels = []
    for device in study.devices:
        times: dict[CellRow, dict[str, float]] = {
            cell: {stage: getattr(cell, f"stage_{stage}_s") or 0.0 for stage in FEEDING}
            for cell in study.on_first_screen(device)
        }
        times = {cell: parts for cell, parts in times.items() if any(parts.values())}
        longest = max((sum(parts.values()) for parts in times.values()), default=0.0)
        seen = {s for parts in times.values() for s in parts if parts[s] >= VISIBLE * longest}
        bars = {}
        for cell, parts in times.items():
            shown = {stage: parts[stage] for stage in parts if stage in seen}
            shown[OTHER] = sum(parts.values()) - sum(shown.values())
            words = f"{text.seconds(sum(parts.values()))}, {text.seconds(cell.step_time_median_s)}"
            lost = [stage for stage in cell.stage_not_split.split(";") if stage]
            bars[cell] = Bar(shown, words + (f"\nnot split: {', '.join(lost)}" if lost else ""))
        used = {stage for bar in bars.values() for stage, s in bar.parts.items() if s > 1e-9}
        if looks := {stage: look for stage, look in STAGES.items() if stage in used}:
            heads = "stages, whole step", "the samples of a step"
            panels.append(_stacked(study, bars, looks, *heads))
    return Picture(panels, key_columns=4) if panels else None


class Bar(NamedTuple):
    """The seconds of a cell: of stacked parts, and of a mark; and the words beside the bar."""

    parts: Mapping[str, float]
    words: str
    mark_s: float | None = None


def _stacked(
    study: StudyResults, bars: Mapping[CellRow, Bar], looks: Mapping[str, Look], head: str, of: str
) -> Panel:
    """A panel with a bar for each cell, made of parts in these looks."""
    cells = [*bars]
    heading, names = chart.names(study, cells)
    longest = max(sum(bar.parts.values()) for bar in bars.values())
    scale, unit = (1000, "ms") if longest < 2 else (1, "s")
    starts, series = [0.0] * len(cells), list[Series]()
    for part, look in looks.items():
        ends = [
            start + scale * bar.parts.get(part, 0.0)
            for start, bar in zip(starts, bars.values(), strict=True)
        ]
        marks = [Mark(n, end, start=starts[n]) for n, end in enumerate(ends)]
        series.append(Series(marks, look, part.replace("_", " "), bars=True))
        starts = ends
    slow = [(n, bar.mark_s) for n, bar in enumerate(bars.values()) if bar.mark_s]
    if slow:
        ticks = [Mark(place, scale * seconds) for place, seconds in slow]
        series.append(Series(ticks, chart.TICK, "95th percentile"))
    return Panel(
        series,
        title=chart.title(study, cells[0].device),
        rows=[
            Row(name, bar.words, strong=cell.use)
            for name, (cell, bar) in zip(names, bars.items(), strict=True)
        ],
        heads=(heading, head),
        x_label=f"time of {of} ({unit})",
        x_limits=(0, None),
    )


def loss(study: StudyResults) -> Picture | None:
    """The training loss by step of cells whose loss departs from their baseline's, and of this: one
    panel for each baseline. All curves are of one repeat, whose data are in the same order."""
    departing = [cell for cell in study.tried if cell.loss_departs]
    groups = text.grouped(departing, study.baseline_cell)
    panels = [_losses(study, [base, *cells]) for base, cells in groups.items() if base]
    panels = [panel for panel in panels if len(panel.series) > 1][: chart.PANELS]
    if panels:
        panels[-1].x_label = "optimizer step"
    return Picture(panels, key_columns=2) if panels else None


def _losses(study: StudyResults, cells: Sequence[CellRow]) -> Panel:
    traces = {(trace.run.key, trace.run.repeat): trace.steps for trace in study.traces}
    repeats = [{repeat for key, repeat in traces if key == cell.key} for cell in cells]
    common = min(set.intersection(*repeats), default=None)
    series = []
    for index, cell in enumerate(cells[: len(chart.CURVES)]):
        steps = traces.get((cell.key, common), ())
        points = [Mark(step.step, step.loss) for step in steps if step.loss is not None]
        every = max(1, len(points) // 8)
        look = {**chart.CURVES[index], "markevery": (index % every, every), "linewidth": 1.4}
        if points:
            series.append(Series(points, look, chart.wrapped(chart.name(study, cell, cells))))
    title = chart.title(study, cells[0].device)
    return Panel(series, title, y_label="training loss", height_in=2.4)


def steps(study: StudyResults) -> Picture | None:
    """Every step of a run, with those left out: one panel for the first ok run of a cell, all on
    one scale; cells of the first screen come first."""
    screen = [cell.key for device in study.devices for cell in study.on_first_screen(device)]
    traces = dict.fromkeys(screen) | text.grouped(study.traces, lambda trace: trace.run.key)
    shown = [group[0] for group in traces.values() if group][: chart.PANELS]
    if not shown:
        return None
    # A first step that compiles would flatten the others: it is cut off, and its time is written.
    steps = [step for trace in shown for step in trace.steps]
    highest = 1200 * max(step.step_s for step in [s for s in steps if not s.warmup] or steps)
    runs = [trace.run for trace in shown]
    panels = [_steps(study, trace, runs, highest) for trace in shown]
    panels[-1].x_label = "optimizer step"
    return Picture(panels)


def _steps(study: StudyResults, trace: Trace, runs: Sequence[RunRow], highest: float) -> Panel:
    times = [Mark(step.step, 1000 * step.step_s) for step in trace.steps]
    waits = [Mark(step.step, 1000 * step.data_wait_s) for step in trace.steps]
    warm = [step.step for step in trace.steps if step.warmup]
    first, names = trace.steps[0], [chart.name(study, trace.run, runs)]
    if 1000 * first.step_s > highest:
        names.append(f"first step {text.seconds(first.step_s)}")
    line = {"color": chart.BLUE, "linewidth": 1.3}
    return Panel(
        [
            Series(waits, chart.WAITING, "waiting for data", bars=True),
            Series(times, line, "a step"),
        ],
        title=chart.title(study, trace.run.device, *names),
        y_label="ms",
        y_limits=(0, highest),
        span=(0.5, warm[-1] + 0.5, "warm-up, left out") if warm else None,
        height_in=1.15,
    )


FIGURES = (
    Figure("step_time", "Where the time of a step goes", "why", 60, step_time),
    Figure("stages", "From the file to the device, by stage", "why", 70, stages),
    Figure("loss", "Loss by step", "runs", 80, loss),
    Figure("steps", "Every step", "runs", 90, steps),
)
