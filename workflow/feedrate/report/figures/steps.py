"""The steps of runs, and their losses."""

from collections.abc import Sequence

from feedrate.report import chart, text
from feedrate.report.chart import Figure, Look, Mark, Panel, Picture, Series
from feedrate.report.rows import CellRow, RunRow
from feedrate.report.study import StudyResults, Trace


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
        look = chart.CURVES[index]._replace(every=(index % every, every), width_pt=1.4)
        if points:
            series.append(Series(points, look, chart.wrapped(study.setting_among(cell, cells))))
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
    first, names = trace.steps[0], [study.setting_among(trace.run, runs)]
    if 1000 * first.step_s > highest:
        names.append(f"first step {text.seconds(first.step_s)}")
    line = Look(chart.BLUE, width_pt=1.3)
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
    Figure("loss", "Loss by step", "runs", 80, loss),
    Figure("steps", "Every step", "runs", 90, steps),
)
