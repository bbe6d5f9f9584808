"""The figures of answers: the settings of a study against each other, and the effect of training on
what a model can do."""

from collections.abc import Sequence

from feedrate.report import chart, sentences, text
from feedrate.report.chart import Figure, Mark, Panel, Picture, Row, Series
from feedrate.report.rows import CellRow
from feedrate.report.scores import NAMES, scored
from feedrate.report.study import StudyResults
from feedrate.results.record import Score


def answer(study: StudyResults) -> Picture | None:
    """What the settings of the first screen are compared by: the share of the model alone that they
    reach, or their rates. One panel for each device."""
    if study.asks != "speed":
        return None
    panels = [_settings(study, device) for device in study.devices]
    drawn = [panel for panel in panels if any(series.marks for series in panel.series)]
    answer = study.answer(study.devices[0]) if len(study.devices) == 1 else None
    return Picture(drawn, sentences.speed(study, answer).text if answer else "") if drawn else None


def _settings(study: StudyResults, device: str) -> Panel:
    cells, by_share = study.on_first_screen(device), study.by_share(device)
    heading, names = chart.names(study, cells)
    chosen, plain, provisional = list[Mark](), list[Mark](), list[Mark]()
    rows = []
    for place, cell in enumerate(cells):
        is_choice, words = study.is_choice(cell), text.state(cell.status, cell.cause)
        if cell.samples_per_s is not None:
            mark, words = _share(place, cell) if by_share else _rate(place, cell)
            (chosen if is_choice else plain).append(mark)
        elif cell.provisional_samples_per_s is not None:
            words = "provisional"
            if not by_share:
                provisional.append(Mark(place, cell.provisional_samples_per_s))
        rows.append(Row(names[place], words, strong=is_choice))
    series = [
        Series(chosen, chart.CHOSEN, bars=True),
        Series(plain, chart.PLAIN, bars=True),
        Series(provisional, chart.PROVISIONAL, bars=True),
    ]
    return Panel(
        series,
        title=chart.title(study, device),
        rows=rows,
        heads=(heading, ""),
        x_label="speed, % of the model alone" if by_share else "samples/s",
        rule=(100, "the model alone") if by_share else None,
        x_limits=(0, max(chart.end(series), 105 if by_share else 0)),
    )


def _share(place: int, cell: CellRow) -> tuple[Mark, str]:
    value, low, high = cell.share or (None, None, None)
    percent = [None if end is None else 100 * end for end in (value, low, high)]
    interval = f" ({text.bounds(low, high)})" if low and high else ""
    return Mark(place, percent[0], percent[1], percent[2]), f"{text.share(value)}{interval}"


def _rate(place: int, cell: CellRow) -> tuple[Mark, str]:
    estimate = cell.samples_per_s, cell.ci_low, cell.ci_high
    return Mark(place, *estimate), text.with_interval(*estimate)


def gain(study: StudyResults) -> Picture | None:
    """Scores before and after training, and by chance: all scores of one cell; of several, the
    first one, in a panel for each device."""
    cells = scored(study) if study.asks == "learning" else []
    if not cells:
        return None
    if len(cells) == 1:
        return Picture([_scores("", [(NAMES[n], score) for n, score in cells[0].scores.items()])])
    panels, metric = [], next(iter(cells[0].scores))
    for device, group in text.grouped(cells, lambda each: each.cell.device).items():
        rows = [each.cell for each in group]
        named = [
            (study.name_among(each.cell, rows), each.scores[metric])
            for each in group
            if metric in each.scores
        ]
        panels.append(_scores(chart.title(study, device, NAMES[metric]), named))
    return Picture(panels)


def _scores(title: str, named: Sequence[tuple[str, Score]]) -> Panel:
    chance, before, after, rows = list[Mark](), list[Mark](), list[Mark](), list[Row]()
    for place, (name, score) in enumerate(named):
        value, low, high = score.after or 0.0, None, None
        if score.before is not None and score.gain_low is not None and score.gain_high is not None:
            low, high = (100 * (score.before + end) for end in (score.gain_low, score.gain_high))
        after.append(Mark(place, 100 * value, low, high))
        if score.before is not None:
            before.append(Mark(place, 100 * score.before))
        if score.chance is not None:
            chance.append(Mark(place, 100 * score.chance))
        rows.append(Row(chart.wrapped(name), text.share(value)))
    return Panel(
        [
            Series(chance, chart.TICK, "by guessing"),
            Series(before, chart.BEFORE, "before training"),
            Series(after, chart.AFTER, "after training"),
        ],
        title=title,
        rows=rows,
        x_label="right answers (%)",
        x_limits=(-3, 103),
    )


FIGURES = (
    Figure("answer", "The settings", "answer", 10, answer),
    Figure("gain", "Scores before and after training", "answer", 20, gain),
)
