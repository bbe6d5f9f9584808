"""What models can do before and after training: the scores of cells over their repeats, and the
answer of a study that asks for them."""

import math
from collections.abc import Sequence
from statistics import fmean, variance
from typing import NamedTuple

import msgspec

from feedrate.config.workflow import GeneratedExamples, LocalExamples
from feedrate.report import text
from feedrate.report.html import FEW, Statement, sentence
from feedrate.report.rows import CellOf, CellRow
from feedrate.report.study import StudyResults
from feedrate.results.record import Score
from feedrate.results.statistics import critical

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
    test, and those on Winoground. `repeats` are the values of the first one by repeat."""

    cell: CellOf
    scores: dict[str, Score]
    repeats: list[float]


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
            cells.append(Scored(group[0][0], scores, after))
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


def noise(models: Sequence[Scored], score: Score, confidence: float) -> tuple[float, bool]:
    """The largest difference between a score and that of other models which chance explains, and
    whether this is known from repeats: of single runs, only the number of answers is known."""
    repeated = [each.repeats for each in models if len(each.repeats) > 1]
    dof = sum(len(repeats) - 1 for repeats in repeated)
    if dof:
        variances = sum(variance(repeats) * (len(repeats) - 1) for repeats in repeated) / dof
        runs = min(map(len, repeated))
        quantile = critical(confidence, dof, len(models) - 1)
        return quantile * math.sqrt(2 * variances / runs), True
    share = score.after or 0.0
    return 1.96 * math.sqrt(2 * share * (1 - share) / (score.n or 1)), False


def winoground(study: StudyResults) -> str:
    """Winoground, or what stands for it here."""
    config = study.plan.project.config
    copy = config.winoground_sets.get(config.winoground or "")
    if isinstance(copy, GeneratedExamples):
        return "generated questions in the manner of Winoground"
    return "your own copy of Winoground" if isinstance(copy, LocalExamples) else "Winoground"


def learning(study: StudyResults, models: Sequence[Scored]) -> Statement:
    """What training adds in the baseline cell, or in the first one; which setting of this model to
    use, what others change, and other models; and what is not learned."""
    baseline = study.study.baseline
    first = next((model for model in models if model.cell.levels == baseline), models[0])
    record = next((run for run in study.runs_of(first.cell) if run.model), None)
    metric, score = next(iter(first.scores.items()))
    base = study.study.baseline_of(first.cell.levels)
    others = [model for model in models if model is not first and metric in model.scores]
    alike = [model for model in others if study.study.baseline_of(model.cell.levels) == base]
    setting = study.setting_among(first.cell, [first.cell, *(model.cell for model in alike)])
    learned = sentence(
        "learning",
        subject=record.model if record else "The model",
        setting=setting if alike else "",
        name=text.uncapital(NAMES[metric]),
        score=score,
        learns=(score.gain_low or 0.0) > 0 and _beats_chance(score),
        worse=score.gain_high is not None and score.gain_high < 0,
    )
    margin, repeated = noise(models, score, study.study.thresholds.confidence)

    def gain(model: Scored) -> float:
        return (model.scores[metric].after or 0.0) - (score.after or 0.0)

    def name(model: Scored) -> str:
        return study.setting_among(model.cell, [model.cell, first.cell])

    as_good = [model for model in alike if gain(model) >= -margin]
    differing = [model for model in others if model not in alike or abs(gain(model)) > margin]
    fastest, speed = _fastest(study, as_good)
    equal = [name(m) for m in as_good if m is not fastest and gain(m) <= margin]
    to_use = sentence(
        "use_for_learning",
        use=name(fastest) if fastest else "",
        gain=f"{text.percent(speed.speedup - 1)}%" if speed else "",
        at_least=speed.speedup_ci_low - 1 if speed else None,
        lower=max(margin - gain(fastest), 0.0) if fastest else None,
        baseline=setting,
    )
    compared = sentence(
        "other_scores",
        equal=equal if len(equal) <= FEW else [text.counted(len(equal), "other setting")],
        other=[f"{text.share(m.scores[metric].after)} with {name(m)}" for m in differing[:FEW]],
        margin=margin,
        repeated=repeated,
    )
    parts = [learned, to_use if as_good else "", compared, _not_learned(study, first, metric)]
    return Statement(" ".join(filter(None, parts)), study.runs_of(first.cell))


def _fastest(
    study: StudyResults, models: Sequence[Scored]
) -> tuple[Scored, CellRow] | tuple[None, None]:
    """The simplest of the models that are shown to train faster than their baseline and are about
    as fast as the fastest of them, and its cell."""
    least = 1 + study.study.thresholds.smallest_effect
    pairs = [(model, study.cell(model.cell.device, model.cell.levels)) for model in models]
    faster = [(m, cell) for m, cell in pairs if cell and (cell.speedup_ci_low or 0.0) >= least]
    most = max((cell.speedup for _, cell in faster), default=0.0)
    fast = [(model, cell) for model, cell in faster if cell.speedup * least >= most]
    return min(fast, key=lambda pair: study.changes(pair[1]), default=(None, None))


def _not_learned(study: StudyResults, model: Scored, metric: str) -> str:
    """The scores besides `metric` that training does not raise, and those on Winoground that are
    not above chance."""
    flat, order = [], []
    for name, score in model.scores.items():
        if score.on != "winoground":
            if name != metric and score.gain_low is not None and score.gain_low <= 0:
                flat.append((text.uncapital(NAMES[name]), score))
        elif (score.gain_low or 0.0) <= 0 or not _beats_chance(score):
            order.append((NAMES[name].partition(", ")[2], score))
    return sentence("not_learned", flat=flat, order=order, questions=winoground(study))


def _beats_chance(score: Score) -> bool:
    """Whether a score is above that of guesses by more than these vary, at 95%. A model that gives
    one answer to all may begin far below chance: then a gain is no proof."""
    chance = score.chance or 0.0
    return (score.after or 0.0) > chance + 1.96 * math.sqrt(chance * (1 - chance) / (score.n or 1))
