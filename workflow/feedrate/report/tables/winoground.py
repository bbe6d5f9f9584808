"""Scores on Winoground before and after training, with published scores below."""

from collections.abc import Iterator, Sequence

from feedrate.config.study import BenchmarkScore
from feedrate.report import text
from feedrate.report.context import PageSettings
from feedrate.report.markup import Markup, el, group_row, noted, row, table, wide_row
from feedrate.report.rows import Inputs, ScoreRow
from feedrate.report.scores import WINOGROUND, cells_of, gain_text, pick

ORDER = 170


def render(settings: PageSettings, inputs: Inputs) -> Markup:
    """Measured scores by device, two rows for each cell; then published scores."""
    if not settings.examples:
        return el("p", "No model is scored on Winoground (winoground: null in the configuration).")
    heads = [settings.factor_labels, "Head", "Moment", *WINOGROUND.values(), "Examples"]
    rows: list[Markup] = []
    scores = inputs.scores(settings.study)
    for device in settings.measured:
        rows.append(group_row(f"{settings.label(device)}: {settings.examples}", len(heads)))
        rows += _measured(scores, device)
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
    values = [f"{getattr(score, name):.2f}%" for name in WINOGROUND]
    head = score.head or text.DASH
    return row(noted(score.model, score.note), head, text.DASH, *values, text.DASH)


def _measured(scores: Sequence[ScoreRow], device: str) -> Iterator[Markup]:
    """The rows of a device; below a score after training is the interval of its gain."""
    for cell in cells_of(scores, device):
        picked = (pick(scores, cell, "winoground", metric) for metric in WINOGROUND)
        found = [score for score in picked if score]
        if not found:
            continue
        name, examples = text.values_text(cell.levels), str(found[0].n)
        mine = [one for one in scores if one.key == cell.key]
        before = [text.share(score.before) for score in found]
        yield row(name, "contrastive", "before", *before, examples, of=mine)
        intervals = [interval for _, interval in map(gain_text, found)]
        gains = [f"gain {interval}" if interval else "" for interval in intervals]
        after = [noted(text.share(s.after), gain) for s, gain in zip(found, gains, strict=True)]
        yield row(name, "contrastive", "after", *after, examples, class_="use", of=mine)
