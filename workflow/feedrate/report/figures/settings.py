"""The settings of a study against each other: their rates, and their gains with their memory."""

from collections.abc import Sequence
from statistics import median

from feedrate.config.values import level_text
from feedrate.report import chart, sentences, text
from feedrate.report.chart import Figure, Mark, Panel, Picture, Row, Series
from feedrate.report.rows import CellRow
from feedrate.report.study import Line, StudyResults
from feedrate.results.comparability import computes_the_same


def answer(study: StudyResults) -> Picture | None:
    """The rates of the settings of the first screen, and the rate of the model alone: one panel for
    each device."""
    if study.asks != "speed":
        return None
    panels = [_rates(study, device) for device in study.devices]
    drawn = [panel for panel in panels if any(series.marks for series in panel.series)]
    for panel in drawn:
        panel.x_limits = 0, max(chart.ends([panel])[1], 1.05 * panel.rule[0] if panel.rule else 0)
        panel.x_label = "samples/s" if panel is drawn[-1] else ""
    answer = study.answer(study.devices[0]) if len(study.devices) == 1 else None
    return Picture(drawn, sentences.conclusion(study, answer) if answer else "") if drawn else None


def _rates(study: StudyResults, device: str) -> Panel:
    cells = study.on_first_screen(device)
    bars: dict[str, list[Mark]] = {"to use": [], "": [], "provisional": []}
    rows = []
    heading, names = chart.names(study, cells)
    for place, cell in enumerate(cells):
        words = text.state(cell.status, cell.cause)
        if cell.samples_per_s is not None:
            rate, *ends = cell.samples_per_s, cell.ci_low, cell.ci_high
            bars["to use" if cell.use else ""].append(Mark(place, rate, *ends))
            words = text.with_interval(rate, *ends)
        elif cell.provisional_samples_per_s is not None:
            bars["provisional"].append(Mark(place, cell.provisional_samples_per_s))
            words = text.number(cell.provisional_samples_per_s, 2)
        rows.append(Row(names[place], words, strong=cell.use))
    alone = _model_alone(study, cells)
    looks = {"to use": chart.CHOSEN, "": chart.PLAIN, "provisional": chart.PROVISIONAL}
    return Panel(
        [Series(marks, looks[name], name, bars=True) for name, marks in bars.items() if marks],
        title=chart.title(study, device),
        rows=rows,
        heads=(heading, ""),
        rule=(alone, f"model alone: {text.number(alone)}") if alone else None,
    )


def _model_alone(study: StudyResults, cells: Sequence[CellRow]) -> float | None:
    """The median rate of the model without a loader, in cells that compute the same as the one to
    use."""
    factors = study.study.factors
    rates = [
        cell.model_samples_per_s
        for used in cells
        for cell in cells
        if used.use and cell.model_samples_per_s
        if computes_the_same(factors, cell.levels, used.levels)
    ]
    return median(rates) if rates else None


def ladder(study: StudyResults) -> Picture | None:
    """The gain of each technique over the baseline, and its peak memory: two panels for each device
    and other setting. Levels that are numbers, such as workers, are no techniques."""
    if all(isinstance(level, int | float) for level in study.study.factors[study.along].levels):
        return None
    lines = [line for line in study.lines(study.along) if len(line.ok) > 1]
    lines = [line for line in lines if all(cell.speedup for cell in line.ok)][: chart.PANELS]
    panels = [panel for line in lines for panel in (_gains(study, line), _memory(line))]
    if not panels:
        return None
    for panel in panels[::2]:
        panel.x_limits = chart.ends(panels[::2], 10)
    panels[-2].x_label, panels[-1].x_label = "gain over the baseline (%)", "peak memory (GiB)"
    return Picture(panels, widths=(1.6, 1), share="x")


def _gains(study: StudyResults, line: Line) -> Panel:
    bars: dict[str, list[Mark]] = {"to use": [], "": []}
    rows = []
    for place, cell in enumerate(line.ok):
        factors = cell.speedup, cell.speedup_ci_low, cell.speedup_ci_high
        value, low, high = (None if end is None else 100 * (end - 1) for end in factors)
        bars["to use" if cell.use else ""].append(Mark(place, value, low, high))
        words = text.DASH if factors == (1, 1, 1) else text.change(*factors)
        name = chart.wrapped(level_text(cell.levels[study.along]))
        rows.append(Row(name, words, strong=cell.use))
    looks = {"to use": chart.CHOSEN, "": chart.PLAIN}
    return Panel(
        [Series(marks, looks[name], name, bars=True) for name, marks in bars.items() if marks],
        title=chart.title(study, line.device, text.levels_text(line.others)),
        rows=rows,
        heads=(chart.wrapped(study.factor_label(study.along)), ""),
        rule=(0, ""),
    )


def _memory(line: Line) -> Panel:
    sizes = [cell.peak_memory_gib for cell in line.ok]
    marks = [Mark(place, gib) for place, gib in enumerate(sizes)]
    return Panel(
        [Series(marks, chart.PLAIN, bars=True)],
        rows=[Row("", text.number(gib, 2)) for gib in sizes],
        x_limits=(0, None),
    )


FIGURES = (
    Figure("answer", "Rates of the settings", "answer", 10, answer),
    Figure("ladder", "Gain and memory of each technique", "why", 50, ladder),
)
