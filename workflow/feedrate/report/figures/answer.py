"""The leading figure: training throughput on each device, its two ceilings, and verdicts."""

import textwrap
from collections.abc import Iterable
from dataclasses import replace

from msgspec.structs import asdict

from feedrate.config.values import level_text
from feedrate.report import chart, text
from feedrate.report.answers import recommended_cell
from feedrate.report.context import PageSettings
from feedrate.report.lines import Line, Point, measured_lines, point_status, unsupported_note
from feedrate.report.rows import CellRow, Inputs
from feedrate.results.verdicts import ratios

KINDS = {"answer": 10}

TRAINING: chart.Look = {**chart.STYLES[0], "linewidth": 2.4, "markersize": 8, "zorder": 5}
CEILING: chart.Look = {"linewidth": 1.6, "markersize": 6, "zorder": 3}
PARTS: dict[str, chart.Look] = {
    "loader": {"color": chart.RED, "marker": "v", "linestyle": (0, (5, 2)), **CEILING},
    "model": {"color": chart.GREEN, "marker": "s", "linestyle": (0, (1, 1.2)), **CEILING},
}
BOLD: chart.Look = {
    "ha": "center",
    "weight": "bold",
    "color": chart.BLUE,
    "fontsize": 10,
    "zorder": 6,
}


def answer(settings: PageSettings, inputs: Inputs) -> chart.Picture:
    """One panel for each device."""
    factor = settings.factor
    cells, runs = inputs.cells(settings.study), inputs.runs(settings.study)
    lines = measured_lines(settings, cells, factor)
    use = {device: recommended_cell(settings, cells, device) for device in settings.measured}
    shown = [
        line
        for device in settings.measured
        if (line := _main_line((one for one in lines if one.device == device), use[device]))
    ]
    panels = []
    for line in shown:
        panel = _panel(line, factor, use[line.device])
        series = [*panel.series, chart.dots(line, runs, chart.BLACK)]
        title, label = _title(settings, line, use[line.device]), settings.factor_label(factor)
        panels.append(replace(panel, series=series, title=title, place_label=label))
    drawn = [line.device for line in shown]
    empty = [settings.label(device) for device in settings.measured if device not in drawn]
    missing = f"No cell has a valid result on {text.listed(empty)}." if empty else ""
    return chart.Picture(
        panels,
        "No cell has a valid result, so there is no throughput to draw.",
        [missing, *(unsupported_note(settings, device) for device in drawn)],
        key_columns=3,
    )


def _main_line(lines: Iterable[Line], cell: CellRow | None) -> Line | None:
    """The line with this cell, otherwise the line with the fastest one."""
    valid = [line for line in lines if line.valid]
    own = (line for line in valid if cell and any(point.row is cell for point in line.points))
    return next(own, max(valid, key=lambda line: line.best, default=None))


def _panel(line: Line, factor: str, use: CellRow | None) -> chart.Panel:
    ceilings = {part: _alone(line, part) for part in PARTS}
    rates = [mark.value or 0.0 for known in ceilings.values() for mark in known]
    # A ceiling far above would flatten the line that matters: it leaves through the top instead.
    top = 1.25 * max([line.best, *(rate for rate in rates if rate < 3 * line.best)])
    ticks = [level_text(point.levels[factor]) for point in line.points]
    if len(ticks) <= chart.FEW // 2:
        remarks = [_remark(line, point) for point in line.points]
        ticks = ["\n".join(pair).rstrip() for pair in zip(ticks, remarks, strict=True)]
    labels = []
    for part, look in PARTS.items():
        own = {"va": "top", "ha": "center", "bbox": chart.PAPER, "color": look["color"]}
        above = [mark for mark in ceilings[part] if (mark.value or 0.0) > top]
        for mark in above if len(ceilings[part]) <= chart.FEW else ():
            words = f"↑ {text.number(mark.value, 3)}"
            labels.append(chart.Label(mark.place, top, words, (0, -2), own))
    chosen = None
    for place, point in enumerate(line.points):
        if use and point.row is use:
            chosen = place
            labels.append(chart.Label(place, 0, "use this", (0, 7), {**BOLD, "va": "baseline"}))
        if point.value is not None and (len(line.points) <= chart.FEW or chosen == place):
            near = [
                m.value or 0.0 for known in ceilings.values() for m in known if m.place == place
            ]
            # The number is above its point unless a ceiling runs there.
            below = any(0 < rate - point.value < 0.14 * top for rate in near)
            offset, va = (-12, "top") if below else (11, "bottom")
            look = {**BOLD, "va": va, "bbox": chart.PAPER}
            words = text.number(point.value, 3)
            labels.append(chart.Label(place, point.value, words, (0, offset), look))
    failed = [chart.Mark(n, 0.03 * top) for n, point in enumerate(line.points) if point.failed]
    return chart.Panel(
        series=[
            *(
                chart.Series(ceilings[part], look, f"{part} only")
                for part, look in PARTS.items()
                if ceilings[part]
            ),
            chart.Series(chart.marks(line), TRAINING, "training"),
            chart.Series(failed, {**chart.CROSS, "color": chart.BLACK}),
        ],
        names=ticks,
        value_label="samples/s",
        limits=(0, top),
        chosen=chosen,
        labels=labels,
        height_in=3.7,
    )


def _alone(line: Line, part: str) -> list[chart.Mark]:
    """The rate of a part alone at each level, with the relative interval of its ratio to training
    in the same rounds."""
    found = []
    for place, point in enumerate(line.points):
        row = point.row
        rate = row and getattr(row, f"{part}_samples_per_s")
        if row and rate and row.samples_per_s and (ratio := ratios(asdict(row))[part]):
            low, high = (end and end / ratio.value * rate for end in (ratio.low, ratio.high))
            found.append(chart.Mark(place, rate, low, high))
    return found


def _remark(line: Line, point: Point) -> str:
    """The text below a level: its verdict and data-wait share, or why it has no number."""
    if point.value is None or point.row is None:
        return textwrap.fill(point_status(line, point), 12)
    wait = point.row.data_wait_share
    waits = f"waits {text.share(wait)}" if wait is not None else ""
    noisy = "noisy" if point.row.noisy else ""
    return "\n".join(filter(None, (point.row.verdict, waits, noisy)))


def _title(settings: PageSettings, line: Line, use: CellRow | None) -> str:
    """The device, the levels that the panel holds fixed, and the setting to use."""
    name = text.with_remark(settings.label(line.device), text.levels_text(line.others))
    if use is None:
        return f"{name}: undecided" if any(p.row and p.row.open for p in line.points) else name
    levels = {k: v for k, v in use.levels.items() if k not in line.others}
    is_baseline = use.levels == settings.baseline
    gain = f", {text.ratio(use.speedup)} the baseline" if use.speedup and not is_baseline else ""
    return f"{name}: use {text.levels_text(levels)} ({text.rate(use.samples_per_s)}{gain})"
