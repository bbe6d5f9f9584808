"""The effect of training on what a model can do."""

from collections.abc import Sequence

from feedrate.report import chart, text
from feedrate.report.chart import Figure, Mark, Panel, Picture, Row, Series
from feedrate.report.scores import NAMES, scored
from feedrate.report.study import StudyResults
from feedrate.results.record import Score


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


FIGURES = (Figure("gain", "Scores before and after training", "answer", 20, gain),)
