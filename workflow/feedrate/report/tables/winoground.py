"""What models score on Winoground, before and after training, beside published scores."""

from collections.abc import Iterator, Sequence

from feedrate.config.published import BenchmarkScore
from feedrate.report import text
from feedrate.report.grid import factor_label
from feedrate.report.markup import Markup, el, group_row, join, row, small, table, wide_row, word
from feedrate.report.qualities import over_repeats, said
from feedrate.report.rows import Inputs, QualityRow
from feedrate.report.settings import TableSettings

_SCORES = {"text_score": "Text score", "image_score": "Image score", "group_score": "Group score"}


def render(settings: TableSettings, inputs: Inputs) -> Markup:
    """Ours by device, two rows a cell and head; below them what others print."""
    if not settings.examples:
        return el("p", "No model is scored on Winoground (winoground: null in the configuration).")
    factors = ", ".join(factor_label(settings, name) for name in settings.factors)
    heads = [factors, "Head", "Moment", *_SCORES.values(), "Examples"]
    rows: list[Markup] = []
    found = inputs.scores(settings.study)
    for device in settings.measured:
        rows.append(group_row(f"{settings.label(device)}: {settings.examples}", len(heads)))
        mine = [one for one in found if one.device == device]
        scored = [one for one in mine if one.on == "winoground"]
        rows += _measured([one for one in scored if one.value is not None])
        rows += _without_head([one for one in scored if one.value is None], len(heads))
        rows += _without_model(mine, len(heads))
    for source in dict.fromkeys(score.source for score in settings.scores):
        rows.append(group_row(f"Published, on Winoground itself: {source}", len(heads)))
        rows += [_published(score) for score in settings.scores if score.source == source]
    return table(heads, rows)


def _published(score: BenchmarkScore) -> Markup:
    values = (score.text_score, score.image_score, score.group_score)
    name = join(score.model, small(score.note))
    head = score.head or text.DASH
    return row([name, head, text.DASH, *(f"{value:.2f}%" for value in values), text.DASH])


def _measured(scores: Sequence[QualityRow]) -> Iterator[Markup]:
    for cell, head, moment in dict.fromkeys((s.cell, s.head, s.moment) for s in scores):
        these = [s for s in scores if (s.cell, s.head, s.moment) == (cell, head, moment)]
        first = these[0]
        values = []
        for metric in _SCORES:
            value, ends = said(over_repeats(s for s in these if s.metric == metric), metric)
            values.append(join(value, small(ends)))
        name = text.values_text(first.levels)
        start = [name, join(head, small(first.note)), moment]
        yield row([*start, *values, str(first.n)], "use" * (moment == "after"))
    if scores:
        chance = {s.metric: s.chance for s in scores}
        yield row(["by chance", "", "", *(text.share(chance.get(m)) for m in _SCORES), ""])


def _without_head(scores: Sequence[QualityRow], width: int) -> Iterator[Markup]:
    """A line for each reason why a head is not scored, however many cells it is of."""
    for head, note in dict.fromkeys((one.head, one.note) for one in scores):
        yield wide_row(f"{head} head", join(word("not scored"), small(note)), width)


def _without_model(scores: Sequence[QualityRow], width: int) -> Iterator[Markup]:
    """A line for each run that has left no model to score."""
    for one in scores:
        if one.status != "ok":
            name = f"{text.values_text(one.levels)}, repeat {one.repeat}"
            yield wide_row(name, join(word("not scored"), small(one.cause)), width)
