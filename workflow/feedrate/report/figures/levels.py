"""What changes along the levels of one factor: latencies, and what fits in memory."""

from collections.abc import Sequence

from feedrate.config.values import level_text
from feedrate.report import chart, text
from feedrate.report.chart import Figure, Mark, Panel, Picture, Row, Series
from feedrate.report.rows import CellRow, Line, without
from feedrate.report.study import StudyResults

ASIDE = 0.07
"""The distance between curves at one level, in levels, so that no interval hides another."""


def latency(study: StudyResults) -> Picture | None:
    """The median latency and the 95th percentile by batch: one panel for each device and level of
    the first other factor. A setting has the same look in all."""
    if study.asks != "latency":
        return None
    lines = [line for line in study.lines(study.along) if line.ok]
    apart = next((name for name in study.study.factors if name != study.along), "")
    names = list(dict.fromkeys(_setting(study, line, apart) for line in lines))[: len(chart.CURVES)]
    groups = text.grouped(lines, lambda line: (line.device, level_text(line.others.get(apart, ""))))
    panels = []
    for (device, level), group in groups.items():
        places = _places(study, group)
        series = []
        for line in group:
            name = _setting(study, line, apart)
            if name in names:
                index = names.index(name)
                aside = ASIDE * (index - (len(names) - 1) / 2)
                marks = [_latency(study, cell, places, aside) for cell in line.ok]
                series.append(Series(marks, chart.CURVES[index], name))
        panels.append(
            Panel(
                series,
                title=chart.title(study, device, level, letters=chart.NAME_LETTERS),
                x_label=study.factor_label(study.along),
                y_label="ms",
                x_names=places,
                log=True,
                height_in=2.2,
            )
        )
    return Picture(panels, columns=2, share_y=True, key_columns=2) if panels else None


def _places(study: StudyResults, lines: Sequence[Line]) -> list[str]:
    """The levels that were tried, in their order."""
    tried = {level_text(cell.levels[study.along]) for line in lines for cell in line.cells}
    return [level for level in study.study.factors[study.along].texts if level in tried]


def _setting(study: StudyResults, line: Line, apart: str) -> str:
    """A line by the levels that differ from the baseline."""
    baseline, others = study.study.baseline, without(line.others, apart)
    changed = {name: level for name, level in others.items() if level != baseline[name]}
    return text.levels_text(changed) or "baseline"


def _latency(study: StudyResults, cell: CellRow, places: list[str], aside: float) -> Mark:
    """The median, with the 95th percentile as the upper end of its interval."""
    place = places.index(level_text(cell.levels[study.along])) + aside
    median_ms, p95_ms = (s and 1000 * s for s in (cell.step_time_median_s, cell.step_time_p95_s))
    return Mark(place, median_ms, median_ms if p95_ms else None, p95_ms)


def reach(study: StudyResults) -> Picture | None:
    """The largest level that fits in memory, by setting, with its rate and memory: one panel for
    each device."""
    if study.asks != "largest":
        return None
    panels = []
    for device in study.devices:
        if lines := [line for line in study.lines_of_answer(device) if line.ok]:
            panels.append(_reach(study, device, lines))
    return Picture(panels) if panels else None


def _reach(study: StudyResults, device: str, lines: list[Line]) -> Panel:
    places = _places(study, lines)

    def place(cell: CellRow) -> int:
        return places.index(level_text(cell.levels[study.along]))

    factors = study.others_varied
    fits, fails, rows = [], [], []
    for number, line in enumerate(lines):
        largest = line.ok[-1]
        fits.append(Mark(number, place(largest), start=-0.6))
        if line.too_large:
            fails.append(Mark(number, place(line.too_large)))
        name = ", ".join(level_text(line.others[factor]) for factor in factors)
        sizes = text.number(largest.samples_per_s, 2), text.number(largest.peak_memory_gib)
        rows.append(Row(chart.wrapped(name), " · ".join(sizes)))
    return Panel(
        [
            Series(fits, chart.CHOSEN, "fits", bars=True),
            *([Series(fails, chart.CROSS, "out of memory")] if fails else []),
        ],
        title=chart.title(study, device),
        rows=rows,
        heads=(chart.wrapped(", ".join(map(study.factor_label, factors))), "samples/s · GiB"),
        x_label=study.factor_label(study.along),
        x_names=places,
    )


FIGURES = (
    Figure("latency", "Latency: median, and 95th percentile above it", "answer", 30, latency),
    Figure("reach", "The largest that fits in memory", "answer", 40, reach),
)
