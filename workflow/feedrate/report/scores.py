"""What models can do before and after training: the scores of cells over their repeats."""

from statistics import fmean
from typing import NamedTuple

import msgspec

from feedrate.config.workflow import GeneratedExamples, LocalExamples
from feedrate.report import text
from feedrate.report.rows import CellOf
from feedrate.report.study import StudyResults
from feedrate.results.record import Score

NAMES = {
    "matching_accuracy": "Right caption of five",
    "accuracy": "Right class",
    "image_to_text_recall_at_1": "Nearest caption is right",
    "text_to_image_recall_at_1": "Nearest picture is right",
    "text_score": "Word order, captions",
    "image_score": "Word order, pictures",
    "group_score": "Word order, both",
}
"""The metrics with their names, in the order of the page: the first that a model has stands for it.
The last three are Winoground's."""


class Scored(NamedTuple):
    """A cell with its scores by metric: those on the test split, or on validation where there is no
    test, and those on Winoground. `seeds` is the range of the first one over the repeats; None for
    a single one."""

    cell: CellOf
    scores: dict[str, Score]
    seeds: float | None


def scored(study: StudyResults) -> list[Scored]:
    """The cells whose models were scored after training. Other programs slow a run down, but they
    do not change what its model learns: disturbed runs count too."""
    runs = [
        (run, study.records[run.folder].scores)
        for run in study.runs
        if (run.status == "ok" or run.provisional) and not run.measured_as
        if run.folder in study.records
    ]
    places = {score.on for _, scores in runs for score in scores if score.after is not None}
    split = "test" if "test" in places else "validation"
    cells = []
    for group in text.grouped(runs, lambda pair: pair[0].key).values():
        known = [score for _, scores in group for score in scores if score.after is not None]
        by_metric = text.grouped(
            (score for score in known if score.on in (split, "winoground")), lambda s: s.metric
        )
        scores = {name: _over_repeats(by_metric[name]) for name in NAMES if name in by_metric}
        if scores:
            after = [score.after or 0.0 for score in by_metric[next(iter(scores))]]
            seeds = max(after) - min(after) if len(after) > 1 else None
            cells.append(Scored(group[0][0], scores, seeds))
    return cells


def _over_repeats(scores: list[Score]) -> Score:
    """The means over repeats, and the outermost ends of the intervals of the gain."""
    before = [score.before for score in scores if score.before is not None]
    low = [score.gain_low for score in scores if score.gain_low is not None]
    high = [score.gain_high for score in scores if score.gain_high is not None]
    return msgspec.structs.replace(
        scores[0],
        before=fmean(before) if before else None,
        after=fmean(score.after or 0.0 for score in scores),
        gain_low=min(low, default=None),
        gain_high=max(high, default=None),
    )


def winoground(study: StudyResults) -> str:
    """Winoground, or what stands for it here."""
    config = study.plan.project.config
    copy = config.winoground_sets.get(config.winoground or "")
    if isinstance(copy, GeneratedExamples):
        return "generated questions in the manner of Winoground"
    return "your own copy of Winoground" if isinstance(copy, LocalExamples) else "Winoground"
