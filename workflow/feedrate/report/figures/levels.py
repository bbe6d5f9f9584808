"""Lines and marks along the levels of one factor: throughput, latency, and what fits."""

import textwrap
from collections.abc import Callable, Sequence
from dataclasses import replace

from feedrate.config.values import Level, level_text
from feedrate.report import chart, text
from feedrate.report.context import PageSettings
from feedrate.report.lines import (
    Line,
    Point,
    at_levels,
    differing,
    ladder_lines,
    line_name,
    published_lines,
    tried_lines,
    unsupported_note,
)
from feedrate.report.rows import Inputs, RunRow

KINDS = {"latency": 70, "reach": 80, "throughput": 110}


def throughput(settings: PageSettings, inputs: Inputs) -> chart.Picture:
    """A panel for each device and for published numbers. Each has its own scale: a published
    eight-card server is not a laptop."""
    factor = settings.factor
    runs = inputs.runs(settings.study)
    ours = tried_lines(settings, inputs.cells(settings.study), factor)
    panels, missing = [], []
    for device in settings.measured:
        mine = [line for line in ours if line.device == device]
        lines = at_levels(mine, lambda point: point.status != "unsupported")
        if any(line.valid for line in lines):
            panels.append(_throughput(settings, f"Here: {settings.label(device)}", lines, runs))
        else:
            missing.append(f"No cell has a valid result on {settings.label(device)}.")
    if published := published_lines(settings, factor):
        title = f"Published: {settings.origin.title}"
        panels.append(_throughput(settings, title, published, runs))
    unsupported = [unsupported_note(settings, device) for device in settings.measured]
    return chart.Picture(
        panels,
        "No cell has a valid result and nothing is published, so there is nothing to draw.",
        [*missing, *unsupported],
    )


def _throughput(
    settings: PageSettings, title: str, lines: Sequence[Line], runs: Sequence[RunRow]
) -> chart.Panel:
    values = [v for line in lines for p in line.points for v in (p.value, p.high)]
    highest = chart.top(values, 1.15)
    series, labels, names = list[chart.Series](), list[chart.Label](), list[str]()
    for index, line in enumerate(lines):
        name = ""
        if line.valid:
            alone = len(lines) == 1 and not line.published
            name = "measured" if alone else _distinguishing(settings, line, lines)
            names.append(name)
        look = chart.style(index, linewidth=1.8, markersize=7)
        series += [
            chart.Series(chart.marks(line), look, name),
            chart.dots(line, runs, look["color"]),
        ]
        # A cross at the lower edge. Of adjacent ones with one status the last is labelled.
        failed = [n for n, point in enumerate(line.points) if point.failed]
        at, color = (0.04 + 0.09 * index) * highest, {"color": look["color"]}
        series.append(chart.Series([chart.Mark(n, at) for n in failed], {**chart.CROSS, **color}))
        for n in failed:
            status = line.points[n].status
            if [point.status for point in line.points[n + 1 : n + 2]] != [status]:
                words = textwrap.fill(text.STATUS_WORDS[status], 14)
                above = {"ha": "center", "va": "bottom", "fontsize": 8, **color}
                labels.append(chart.Label(n, at, words, (0, 5), above))
    lines_of_names = sum(1 + name.count("\n") for name in names)
    return chart.Panel(
        series=series,
        title=title,
        names=[level_text(point.levels[settings.factor]) for point in lines[0].points],
        place_label=settings.factor_label(settings.factor),
        value_label="samples/s",
        limits=(0, highest),
        labels=labels,
        key=True,
        height_in=max(2.9, 0.9 + chart.LINE_IN * lines_of_names),
    )


def _distinguishing(settings: PageSettings, line: Line, lines: Sequence[Line]) -> str:
    """The words that distinguish a line in its panel; for published numbers also the device."""
    if line.published:
        return line_name(settings, line, lines).replace(", ", ",\n")
    return text.levels_text(differing(settings, line.others, *lines)).replace(", ", ",\n")


ASIDE = 0.07
"""The distance between series at one level, in levels, so that no bar hides another."""


def latency(settings: PageSettings, inputs: Inputs) -> chart.Picture:
    """Latency and throughput: a row of two panels for each device and level of the first other
    factor, in the order of the configuration. A series has the same style in all rows."""
    factor = settings.factor
    tried = tried_lines(settings, inputs.cells(settings.study), factor)
    lines = [line for line in tried if line.valid]
    apart = next((name for name in settings.factors if name != factor), "")

    def title_of(line: Line) -> str:
        label = settings.label(line.device)
        return f"{label}: {level_text(line.others[apart])}" if apart else label

    def name_of(line: Line) -> str:
        others: dict[str, Level] = {name: at for name, at in line.others.items() if name != apart}
        return text.levels_text(differing(settings, others, *lines)) or "measured"

    names = list(dict.fromkeys(map(name_of, lines)))
    panels = []
    for title, whole in text.grouped(lines, title_of).items():
        group = at_levels(whole, lambda point: point.tried)
        latencies = [replace(one, points=[_latency(p) for p in one.points]) for one in group]
        for shown, unit, heading in ((latencies, "latency (ms)", title), (group, "samples/s", "")):
            series = [
                chart.Series(
                    chart.marks(line, ASIDE * (number - (len(shown) - 1) / 2)),
                    chart.style(names.index(name_of(line)), linewidth=1.6, markersize=6),
                    name_of(line),
                )
                for number, line in enumerate(shown)
            ]
            panels.append(
                chart.Panel(
                    series=series,
                    title=heading,
                    names=[level_text(point.levels[factor]) for point in group[0].points],
                    place_label=settings.factor_label(factor),
                    value_label=unit,
                    limits=(None, None) if shown is latencies else (0, None),
                    log="fine" if shown is latencies else "",
                    height_in=2.5,
                )
            )
    return chart.Picture(
        panels,
        "No cell has a valid result, so there is no latency to draw.",
        key_columns=1,
        widths=(1, 1),
        # Models can be compared on one scale, devices cannot.
        share="y of columns" if len({line.device for line in lines}) == 1 else "",
    )


def _latency(point: Point) -> Point:
    """The median latency of a cell, with the 99th percentile as the upper end, in ms."""
    row = point.row
    if row is None or point.value is None or row.step_time_median_s is None:
        return replace(point, value=None, low=None, high=None)
    median_ms = 1000 * row.step_time_median_s
    p99_ms = None if row.step_time_p99_s is None else 1000 * row.step_time_p99_s
    return replace(point, value=median_ms, low=median_ms, high=p99_ms)


WIDE = 20
"""The ratio of the largest to the smallest value from which the scale is logarithmic."""

Height = Callable[[Line], float | None]


def reach(settings: PageSettings, inputs: Inputs) -> chart.Picture:
    """Throughput at the smallest batch and at the largest that fits, and that batch: three panels
    for each device. A missing mark is a setting that could not be trained."""
    factor, cells = settings.factor, inputs.cells(settings.study)
    fitting = {
        device: [line for line in ladder_lines(settings, cells, factor, device) if line.valid]
        for device in settings.measured
    }
    panels = [
        replace(_reach(lines, height), title=f"{settings.label(device)}: {title}", value_label=unit)
        for device, lines in fitting.items()
        for title, unit, height in _measures(settings)
        if lines
    ]
    stated = [  # about the source's bars, which have no printed numbers
        f"{text.levels_text(row.levels)}: {text.exact(row.value)} {row.unit} ({row.protocol})"
        for row in settings.published
        if row.headline
    ]
    return chart.Picture(
        panels,
        "No cell has a valid result, so there is nothing to draw.",
        [f"Stated by {settings.origin.title}:" if stated else "", *stated],
        key_columns=4,
    )


def _measures(settings: PageSettings) -> list[tuple[str, str, Height]]:
    """The title, the unit and the value of each panel."""
    factor, label = settings.factor, settings.factor_label(settings.factor)
    smallest = settings.factors[factor].levels[0]

    def at_smallest(line: Line) -> float | None:
        return next((p.value for p in line.valid if p.levels[factor] == smallest), None)

    def largest(line: Line) -> float | None:
        level = line.valid[-1].levels[factor]
        return float(level) if isinstance(level, int | float) else None

    return [
        (f"{label} {smallest}", "samples/s", at_smallest),
        (f"the largest {label} that fits", "samples/s", lambda line: line.valid[-1].value),
        (f"that {label}", label, largest),
    ]


def _reach(mine: Sequence[Line], height: Height) -> chart.Panel:
    """A group for each level of the first other factor, a mark for each of the rest."""
    levels = [[level_text(level) for level in line.others.values()] or [""] for line in mine]
    split = [(first, ", ".join(rest)) for first, *rest in levels]
    groups, names = (list(dict.fromkeys(column)) for column in zip(*split, strict=True))
    width = 0.8 / len(names)
    above = {
        "ha": "center",
        "va": "bottom",
        "fontsize": 8,
        "rotation": 90 if len(mine) > chart.FEW else 0,
    }
    series, labels = list[chart.Series](), list[chart.Label]()
    for index, name in enumerate(names):
        places = [
            chart.Mark(groups.index(group) + (index + 0.5) * width - 0.4, value)
            for line, (group, own) in zip(mine, split, strict=True)
            if own == name and (value := height(line))
        ]
        series.append(
            chart.Series(places, chart.style(index, linestyle="", markersize=7), name or "all")
        )
        for mark in places:
            value = mark.value or 0.0
            number = f"{value:.3g}" if value < 1000 else f"{value:,.0f}"
            labels.append(chart.Label(mark.place, value, number, (0, 6), above))
    seen = [value for value in map(height, mine) if value]
    low, high = min(seen, default=1.0), max(seen, default=1.0)
    log = high > WIDE * low
    # With room above the highest mark for its number.
    limits = (0.7 * low, 1.4 * high * (high / low) ** 0.4) if log else (0.0, 1.37 * high)
    return chart.Panel(
        series=series,
        names=groups,
        limits=limits,
        log="decades" if log else "",
        labels=labels,
        height_in=2.2,
    )
