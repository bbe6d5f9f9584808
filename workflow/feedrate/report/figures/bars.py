"""A row for each cell: time of a step, its stages, gains over a baseline, and scores."""

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import median
from typing import Any, NamedTuple

from feedrate.config.values import level_text
from feedrate.report import chart, text
from feedrate.report.context import PageSettings
from feedrate.report.lines import Line, line_name, short_names, tried_lines, unsupported_note
from feedrate.report.rows import CellRow, Inputs, RunRow
from feedrate.report.scores import MATCHING, SPLITS, cells_of, gain_text, pick
from feedrate.results.schema import FEEDING

KINDS = {"gain": 20, "ladder": 60, "step_time": 120, "stages": 126}

LETTER_IN, LABEL_IN = 0.08, 1.3
"""The width of a letter of a cell's name, and of the label behind a bar."""
_COLORS = (
    *(chart.PURPLE, chart.RED, chart.BLUE, chart.SKY),
    *(chart.BLACK, chart.GREEN, chart.ORANGE, chart.LIGHT),
)
STAGES: dict[str, chart.Look] = {
    stage: {"facecolor": color, "edgecolor": "white", "hatch": "////" if number % 2 else ""}
    for number, (stage, color) in enumerate(zip(FEEDING, _COLORS, strict=True))
}


class Bar(NamedTuple):
    """The seconds of a cell: those of parts, which are stacked, and of a tick; and words."""

    parts: dict[str, float]
    tick: float
    words: str


def step_time(settings: PageSettings, inputs: Inputs) -> chart.Picture:
    """The time of a step, waiting for data and the rest: one panel for each device and one bar for
    each cell that was tried."""
    cells = inputs.cells(settings.study)
    good = {cell.device for cell in cells if cell.status == "ok"}
    tried = [c for c in cells if c.status != "unsupported" and c.device in good]
    valid = [run for run in inputs.runs(settings.study) if run.status == "ok"]
    runs = text.grouped(valid, lambda run: run.key)
    looks = {
        "waiting for data": chart.WAITING,
        "all the rest": {"facecolor": chart.BLUE, "edgecolor": "white"},
    }
    panels = []
    for panel, mine in chart.bar_panels(settings, tried):
        names_in = LETTER_IN * max(map(len, short_names(mine).values()))
        share = max(0.2, 1 - LABEL_IN / max(LABEL_IN, chart.WIDTH_IN - names_in))
        bars = [_step_time(cell, runs.get(cell.key, ())) for cell in mine]
        about = "95th percentile of step times", "time of an optimizer step"
        panels.append(_stacked(panel, mine, bars, looks, *about, 1.05 / share))
    none = "No cell has a valid result, so there is no step time to draw."
    return chart.Picture(panels, none, key_columns=3)


def _step_time(cell: CellRow, runs: Sequence[RunRow]) -> Bar:
    if not runs:
        return Bar({}, 0.0, text.STATUS_WORDS[cell.status])
    step = median(_mean_step(run) for run in runs)
    waits = median(run.data_wait_share or 0.0 for run in runs)
    slow = [run.step_time_p95_s for run in runs if run.step_time_p95_s is not None]
    parts = {"waiting for data": step * waits, "all the rest": step * (1 - waits)}
    words = f"{text.seconds(step)}, waits {text.share(waits)}"
    return Bar(parts, median(slow) if slow else 0.0, words)


def _mean_step(run: RunRow) -> float:
    if run.wall_s is not None and run.steps:
        return run.wall_s / run.steps
    return run.step_time_median_s or 0.0


def stages(settings: PageSettings, inputs: Inputs) -> chart.Picture:
    """The time of a step's samples from the files to the device, by stage. One panel for each
    device; a bar is the time of all the processes of a rank."""
    times = {cell.key: _stages(cell) for cell in inputs.cells(settings.study)}
    cells = [cell for cell in inputs.cells(settings.study) if any(times[cell.key].parts.values())]
    known = {name for cell in cells for name, s in times[cell.key].parts.items() if s}
    looks = {name: look for name, look in STAGES.items() if name in known}
    about = "median step", "time of a step's samples in each stage"
    panels = [
        _stacked(panel, mine, [times[cell.key] for cell in mine], looks, *about, 1.85)
        for panel, mine in chart.bar_panels(settings, cells)
    ]
    none = "No cell has times by stage, so there is nothing to draw."
    return chart.Picture(panels, none, key_columns=4)


def _stages(cell: CellRow) -> Bar:
    parts: dict[str, float] = {stage: getattr(cell, f"stage_{stage}_s") or 0.0 for stage in FEEDING}
    step = cell.step_time_median_s or 0.0
    missing = [stage.replace("_", " ") for stage in cell.stage_not_split.split(";") if stage]
    words = text.seconds(sum(parts.values())) + (f"; step {text.seconds(step)}" if step else "")
    words += f"; not split: {', '.join(missing)}" if missing else ""
    return Bar(parts, step, textwrap.fill(words, 30))


def _stacked(
    panel: chart.Panel,
    cells: Sequence[CellRow],
    bars: Sequence[Bar],
    looks: Mapping[str, chart.Look],
    tick: str,
    about: str,
    room: float,
) -> chart.Panel:
    """Bars with their parts in these looks, and their words behind them."""
    ends = [max(sum(bar.parts.values()), bar.tick) for bar in bars]
    scale, unit = (1000, "ms") if max(ends) < 2 else (1, "s")
    series, starts = list[chart.Series](), [0.0] * len(bars)
    for part, look in looks.items():
        lengths = [scale * bar.parts.get(part, 0.0) for bar in bars]
        pairs = enumerate(zip(starts, lengths, strict=True))
        marks = [chart.Mark(n, start + length, start=start) for n, (start, length) in pairs]
        series.append(chart.Series(marks, look, part.replace("_", " "), bars=True))
        starts = [mark.value or 0.0 for mark in marks]
    ticks = [chart.Mark(n, scale * bar.tick) for n, bar in enumerate(bars) if bar.tick]
    names = short_names(cells)
    return replace(
        panel,
        series=[*series, chart.Series(ticks, chart.TICK, tick)],
        names=[names[cell.cell] for cell in cells],
        value_label=f"{about} ({unit})",
        limits=(0, room * scale * max(ends)),
        labels=[chart.Label(n, scale * ends[n], bar.words) for n, bar in enumerate(bars)],
    )


def ladder(settings: PageSettings, inputs: Inputs) -> chart.Picture:
    """An ablation: the speed-up of each level of one factor alone over the baseline, and its peak
    memory. Two panels for each device and other settings."""
    lines = [
        replace(line, points=[point for point in line.points if point.tried])
        for line in tried_lines(settings, inputs.cells(settings.study), settings.factor)
        if line.valid
    ]
    panels = []
    for line in lines:
        common: dict[str, Any] = {"rows": True, "height_in": 0.9 + 0.34 * len(line.points)}
        title = line_name(settings, line, lines)
        panels += [_speedups(settings, line, title, **common), _memory(line, **common)]
    if panels:
        label = settings.factor_label(settings.factor)
        panels[-2].value_label = f"throughput relative to baseline, by {label}"
        panels[-1].value_label = "peak memory (GiB)"
    return chart.Picture(
        panels,
        "No cell has a valid result, so there is no speed-up to draw.",
        [unsupported_note(settings, device) for device in settings.measured],
        widths=(1.7, 1),
    )


def _speedups(settings: PageSettings, line: Line, title: str, **common: Any) -> chart.Panel:
    faster, slower = list[chart.Mark](), list[chart.Mark]()
    labels = list[chart.Label]()
    ends = [0.1]
    for place, point in enumerate(line.points):
        row = point.row
        if row and row.speedup is not None:
            known = row.speedup, row.speedup_ci_low, row.speedup_ci_high
            ends += [abs(end - 1) for end in known if end is not None]
        if row is None or row.speedup is None or point.levels == settings.baseline_of(point.levels):
            word = text.STATUS_WORDS[point.status] if point.failed else text.rate(point.value)
            labels.append(chart.Label(place, 1.0, word, (4, 0), {"bbox": chart.PAPER}))
            continue
        group = faster if row.speedup >= 1 else slower
        group.append(chart.Mark(place, row.speedup, row.speedup_ci_low, row.speedup_ci_high, 1.0))
        end = max(1.0, row.speedup_ci_high or row.speedup)
        labels.append(chart.Label(place, end, text.ratio(row.speedup), (4, 0)))
    reach = max(ends)
    return chart.Panel(
        series=[
            chart.Series(faster, {"color": chart.SKY}, bars=True),
            chart.Series(slower, {"color": chart.ORANGE, "hatch": "///"}, bars=True),
        ],
        title=title,
        names=[level_text(point.levels[settings.factor]) for point in line.points],
        limits=(min(0.9, 1 - 1.15 * reach), max(1.1, 1 + 1.6 * reach)),
        rule=(1, ""),
        labels=labels,
        **common,
    )


def _memory(line: Line, **common: Any) -> chart.Panel:
    sizes = [point.row.peak_memory_gib if point.row else None for point in line.points]
    known = [
        chart.Mark(place, gib, words=text.number(gib, 3)) for place, gib in enumerate(sizes) if gib
    ]
    return chart.Panel(
        series=[chart.Series(known, {"color": chart.LIGHT}, bars=True)],
        names=[""] * len(line.points),
        limits=(0, chart.top(sizes, 1.35)),
        **common,
    )


def gain(settings: PageSettings, inputs: Inputs) -> chart.Picture:
    """The effect of training: the share of captions chosen correctly before and after, and chance.
    Two points for each cell and split."""
    found = [row for row in inputs.scores(settings.study) if row.score.metric == MATCHING]
    cells = [cell for device in settings.measured for cell in cells_of(found, device)]
    several = len(settings.measured) > 1
    names = [
        (f"{settings.label(cell.device)}: " if several else "") + text.values_text(cell.levels)
        for cell in cells
    ]
    chance = next((row.score.chance for row in found if row.score.chance is not None), None)
    panels = []
    for split in SPLITS if cells else ():
        before, after = list[chart.Mark](), list[chart.Mark]()
        for place, cell in enumerate(cells):
            score = pick(found, cell, split, MATCHING)
            if score and score.before is not None:
                words = text.share(score.before)
                before.append(chart.Mark(place - 0.11, 100 * score.before, words=words))
            if score and score.after is not None:
                points, interval = gain_text(score)
                words = text.with_remark(f"{text.share(score.after)}, {points} points", interval)
                after.append(chart.Mark(place + 0.11, 100 * score.after, words=words))
        looks = (
            chart.style(1, linestyle="none", markersize=6),
            chart.style(0, linestyle="none", markersize=6),
        )
        panels.append(
            chart.Panel(
                series=[
                    chart.Series(before, looks[0], "before training"),
                    chart.Series(after, looks[1], "after training"),
                ],
                title=split,
                names=names,
                rows=True,
                limits=(0, 100),
                rule=None if chance is None else (100 * chance, "by chance"),
                height_in=0.62 * len(cells) + 0.65,
            )
        )
    if panels:
        panels[-1].value_label = "right caption of five chosen (%)"
    return chart.Picture(
        panels,
        "No model was asked to choose the right caption of five.",
        key_columns=3,
        share="x",
    )
