"""Scores on Winoground before and after training, with published scores below."""

from collections.abc import Iterator, Sequence

from feedrate.config.study import BenchmarkScore
from feedrate.report import text
from feedrate.report.markup import (
    Markup,
    el,
    group_row,
    not_scored_rows,
    noted,
    row,
    score_field,
    table,
    wide_row,
    word,
)
from feedrate.report.params import PageSettings
from feedrate.report.rows import Inputs, QualityRow
from feedrate.report.scores import over_repeats

NEEDS = ("scores", "winoground")
ORDER = 170

SCORES = {"text_score": "Text score", "image_score": "Image score", "group_score": "Group score"}


def render(settings: PageSettings, inputs: Inputs) -> Markup:
    """Measured scores by device, two rows for each cell and head; then published scores."""
    if not settings.examples:
        return el("p", "No model is scored on Winoground (winoground: null in the configuration).")
    heads = [settings.factor_labels, "Head", "Moment", *SCORES.values(), "Examples"]
    rows: list[Markup] = []
    found = inputs.scores(settings.study)
    for device in settings.measured:
        rows.append(group_row(f"{settings.label(device)}: {settings.examples}", len(heads)))
        mine = [one for one in found if one.device == device]
        scored = [one for one in mine if one.on == "winoground"]
        rows += _measured([one for one in scored if one.value is not None])
        reasons = dict.fromkeys((one.head, one.note) for one in scored if one.value is None)
        for head, note in reasons:
            reason = noted(word("not scored"), note)
            rows.append(wide_row(f"{head} head", reason, len(heads)))
        rows += not_scored_rows(mine, len(heads))
    for source in dict.fromkeys(score.source for score in settings.scores):
        rows.append(group_row(f"Published, on Winoground itself: {source}", len(heads)))
        rows += [_published(score) for score in settings.scores if score.source == source]
    others = text.grouped(settings.accuracies, lambda one: f"{one.benchmark}: {one.source}")
    for heading, accuracies in others.items():
        rows.append(group_row(f"Published, not measured here: accuracy on {heading}", len(heads)))
        for one in accuracies:
            accuracy = noted(f"{one.accuracy:.2f}%", one.note)
            rows.append(wide_row(one.model, accuracy, len(heads)))
    return table(heads, rows)


def _published(score: BenchmarkScore) -> Markup:
    values = [f"{getattr(score, name):.2f}%" for name in SCORES]
    head = score.head or text.DASH
    return row(noted(score.model, score.note), head, text.DASH, *values, text.DASH)


def _measured(scores: Sequence[QualityRow]) -> Iterator[Markup]:
    for cell, head, moment in dict.fromkeys((s.cell, s.head, s.moment) for s in scores):
        these = [s for s in scores if (s.cell, s.head, s.moment) == (cell, head, moment)]
        first = these[0]
        values = [score_field(over_repeats(s for s in these if s.metric == m), m) for m in SCORES]
        fields = [noted(head, first.note), moment, *values, str(first.n)]
        use = "use" * (moment == "after")
        yield row(text.values_text(first.levels), *fields, class_=use, of=these)
    if scores:
        chance = {s.metric: s.chance for s in scores}
        yield row("by chance, no ties", "", "", *(text.share(chance.get(m)) for m in SCORES), "")
