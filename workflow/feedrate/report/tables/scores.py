"""Scores of models before and after training, on pictures that were not used for training."""

from collections.abc import Iterator, Sequence

from feedrate.config.study import BenchmarkScore
from feedrate.report import text
from feedrate.report.context import PageSettings
from feedrate.report.rows import Inputs, ScoreRow
from feedrate.report.scores import METRICS, SPLITS, WINOGROUND, cells_of, gain_text, pick
from feedrate.report.table import Field, Row, Shown, Table, listed

KINDS = {"quality": 30, "winoground": 170}


def quality(settings: PageSettings, inputs: Inputs) -> Table | str:
    """A row for each cell and score, by device and split."""
    scores = inputs.scores(settings.study)
    if not scores:
        return "No run of this study was evaluated before and after training."
    rows: list[Row | str] = []
    for device in settings.measured:
        for split in SPLITS:
            rows += [f"{settings.label(device)}, {split}", *_split(scores, device, split)]
    heads = ("Score", "Before", "After", "Gain (points)", "By chance", "Answers")
    return Table(settings.factor_labels, listed(*heads), rows)


def _split(scores: Sequence[ScoreRow], device: str, split: str) -> Iterator[Row]:
    for cell in cells_of(scores, device):
        for metric, name in METRICS.items():
            if score := pick(scores, cell, split, metric):
                gain, interval = gain_text(score)
                shares = text.share(score.before), text.share(score.after)
                chance = text.share(score.chance)
                fields = [name, *shares, Field(gain, [interval]), chance, str(score.n)]
                yield Row(_name(scores, cell), fields)


def _name(scores: Sequence[ScoreRow], cell: ScoreRow) -> Field:
    return Field(text.values_text(cell.levels), of=[one for one in scores if one.key == cell.key])


def winoground(settings: PageSettings, inputs: Inputs) -> Table | str:
    """Scores on Winoground before and after training by device; then published scores."""
    if not settings.examples:
        return "No model is scored on Winoground (winoground: null in the configuration)."
    rows: list[Row | str] = []
    scores = inputs.scores(settings.study)
    for device in settings.measured:
        rows.append(f"{settings.label(device)}: {settings.examples}")
        rows += _measured(scores, device)
    for source in dict.fromkeys(score.source for score in settings.scores):
        rows.append(f"Published, on Winoground itself: {source}")
        rows += [_published(score) for score in settings.scores if score.source == source]
    others = text.grouped(settings.accuracies, lambda one: f"{one.benchmark}: {one.source}")
    for heading, accuracies in others.items():
        rows.append(f"Published, not measured here: accuracy on {heading}")
        for one in accuracies:
            rows.append(Row(one.model, wide=Field(f"{one.accuracy:.2f}%", [one.note])))
    columns = listed("Head", "Moment", *WINOGROUND.values(), "Examples")
    return Table(settings.factor_labels, columns, rows)


def _published(score: BenchmarkScore) -> Row:
    values = [f"{getattr(score, name):.2f}%" for name in WINOGROUND]
    fields = [score.head or text.DASH, text.DASH, *values, text.DASH]
    return Row(Field(score.model, [score.note]), fields)


def _measured(scores: Sequence[ScoreRow], device: str) -> Iterator[Row]:
    """The rows of a device; below a score after training is the interval of its gain."""
    for cell in cells_of(scores, device):
        picked = (pick(scores, cell, "winoground", metric) for metric in WINOGROUND)
        found = [score for score in picked if score]
        if not found:
            continue
        name, examples = _name(scores, cell), str(found[0].n)
        before: list[Shown] = [text.share(score.before) for score in found]
        yield Row(name, ["contrastive", "before", *before, examples])
        gains = [interval and f"gain {interval}" for _, interval in map(gain_text, found)]
        after = [Field(text.share(s.after), [gain]) for s, gain in zip(found, gains, strict=True)]
        yield Row(name, ["contrastive", "after", *after, examples], use=True)
