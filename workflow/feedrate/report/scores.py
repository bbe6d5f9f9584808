"""Scores of models before and after training: means over the repeats of a cell."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from feedrate.report import text
from feedrate.report.markup import Markup, join, small, wide_row, word
from feedrate.report.rows import QualityRow

MATCHING = "matching_accuracy"
METRICS = {
    MATCHING: "Right caption of five",
    "image_to_text_recall_at_1": "Image to text: recall at 1",
    "image_to_text_recall_at_5": "at 5",
    "image_to_text_recall_at_10": "at 10",
    "text_to_image_recall_at_1": "Text to image: recall at 1",
    "text_to_image_recall_at_5": "at 5",
    "text_to_image_recall_at_10": "at 10",
    "accuracy": "Accuracy",
    "contrastive_loss": "Contrastive loss",
    "loss": "Loss",
}
"""Metrics of a split in the order of the table, with their headings."""
LOSSES = ("contrastive_loss", "loss")
SPLITS = ("validation", "test")
MOMENTS = ("before", "after")

Key = tuple[str, str]
"""A device and a cell."""


@dataclass(frozen=True)
class Score:
    """A metric over the repeats of a cell: the mean, and the outermost ends of their intervals."""

    value: float | None
    low: float | None
    high: float | None
    chance: float | None
    repeats: int


def over_repeats(rows: Iterable[QualityRow]) -> Score | None:
    """One metric of one cell at one moment over all repeats; None without any row."""
    found = list(rows)
    if not found:
        return None
    known = [row for row in found if row.value is not None]
    values = [row.value for row in known if row.value is not None]
    return Score(
        value=sum(values) / len(values) if values else None,
        low=min((row.low for row in known if row.low is not None), default=None),
        high=max((row.high for row in known if row.high is not None), default=None),
        chance=next((row.chance for row in found if row.chance is not None), None),
        repeats=len(values),
    )


def pick(rows: Iterable[QualityRow], cell: Key, on: str, metric: str, moment: str) -> Score | None:
    """The score of a cell on a split by a metric, before or after training."""
    wanted = (*cell, on, metric, moment)
    return over_repeats(r for r in rows if (r.device, r.cell, r.on, r.metric, r.moment) == wanted)


def cells_of(rows: Iterable[QualityRow], device: str) -> list[Key]:
    """The cells of a device that have scores, in the order of the results."""
    return list(dict.fromkeys((r.device, r.cell) for r in rows if r.device == device and r.metric))


def score_text(score: Score | None, metric: str) -> tuple[str, str]:
    """A value and its interval: a share in per cent, a loss as a number."""
    if score is None or score.value is None:
        return text.DASH, ""
    if metric in LOSSES:
        return text.number(score.value, 3), text.interval(score.low, score.high)
    if score.low is None or score.high is None:
        return text.share(score.value), ""
    low = text.share(score.low).removesuffix("%")
    return text.share(score.value), f"{low}{text.DASH}{text.share(score.high)}"


def score_field(score: Score | None, metric: str) -> Markup:
    """A score with its interval below it."""
    value, interval = score_text(score, metric)
    return join(value, small(interval))


def not_scored_rows(rows: Sequence[QualityRow], width: int) -> Iterator[Markup]:
    """A row for each run without a model to score."""
    for one in rows:
        if one.status != "ok":
            name = f"{text.values_text(one.levels)}, repeat {one.repeat}"
            yield wide_row(name, join(word("not scored"), small(one.cause)), width)
