"""The effect of training on what a model can do."""

from collections.abc import Sequence

from feedrate.report import chart, text
from feedrate.report.chart import Figure, Mark, Panel, Picture, Row, Series
from feedrate.report.rows import CellOf
from feedrate.report.study import StudyResults

SCORES = (
    ("validation", "matching_accuracy", "right caption of five, validation"),
    ("test", "matching_accuracy", "right caption of five, test"),
    ("winoground", "text_score", "Winoground: text"),
    ("winoground", "image_score", "Winoground: image"),
    ("winoground", "group_score", "Winoground: both"),
)
"""On what, by which metric, and the name in the figure."""


def gain(study: StudyResults) -> Picture | None:
    """Scores before and after training, and by chance: one panel for each cell."""
    if study.asks != "learning":
        return None
    cells = list({row.key: row for row in study.scores}.values())
    panels = [_scores(study, cell, cells) for cell in cells[: chart.PANELS]]
    panels = [panel for panel in panels if panel.rows]
    if panels:
        panels[-1].x_label = "right answers (%)"
    return Picture(panels, share="x") if panels else None


def _scores(study: StudyResults, cell: CellOf, cells: Sequence[CellOf]) -> Panel:
    chance, before, after, rows = list[Mark](), list[Mark](), list[Mark](), list[Row]()
    for on, metric, name in SCORES:
        score = study.score(cell, on, metric)
        if score is None or score.after is None:
            continue
        place, low, high = len(rows), None, None
        if score.before is not None and score.gain_low is not None and score.gain_high is not None:
            low, high = (100 * (score.before + end) for end in (score.gain_low, score.gain_high))
        after.append(Mark(place, 100 * score.after, low, high))
        words = f"{text.percent(score.after)}%"
        if score.before is not None:
            before.append(Mark(place, 100 * score.before))
            words += f", was {text.percent(score.before)}%"
        if score.chance is not None:
            chance.append(Mark(place, 100 * score.chance))
        rows.append(Row(chart.wrapped(name), words))
    names = [chart.name(study, cell, cells)] if len(cells) > 1 else []
    return Panel(
        [
            Series(chance, chart.TICK, "by chance"),
            Series(before, chart.BEFORE, "before training"),
            Series(after, chart.AFTER, "after training"),
        ],
        title=chart.title(study, cell.device, *names),
        rows=rows,
        x_limits=(-3, 103),
    )


FIGURES = (Figure("gain", "Scores before and after training", "answer", 20, gain),)
