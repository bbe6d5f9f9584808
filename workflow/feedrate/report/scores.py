"""Scores of models before and after training, over the repeats of a cell."""

from collections.abc import Iterable
from typing import NamedTuple

from feedrate.report import text
from feedrate.report.rows import CellOf, QualityRow

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


class Score(NamedTuple):
    """A metric over the repeats of a cell: the mean, and the outermost ends of their intervals."""

    value: float
    low: float | None
    high: float | None
    gain_low: float | None
    gain_high: float | None
    """The outermost ends of the intervals of the paired change by training."""
    chance: float | None


def over_repeats(rows: Iterable[QualityRow]) -> Score | None:
    """One metric of one cell at one moment over all repeats; None without any value."""
    known = [row for row in rows if row.value is not None]
    if not known:
        return None

    def all_of(column: str) -> list[float]:
        return [one for row in known if (one := getattr(row, column)) is not None]

    return Score(
        value=sum(all_of("value")) / len(known),
        low=min(all_of("low"), default=None),
        high=max(all_of("high"), default=None),
        gain_low=min(all_of("gain_low"), default=None),
        gain_high=max(all_of("gain_high"), default=None),
        chance=next(iter(all_of("chance")), None),
    )


def pick(
    rows: Iterable[QualityRow], cell: CellOf, on: str, metric: str, moment: str
) -> Score | None:
    """The score of a cell on a split by a metric, before or after training."""
    wanted = (*cell.key, on, metric, moment)
    return over_repeats(r for r in rows if (*r.key, r.on, r.metric, r.moment) == wanted)


def cells_of(rows: Iterable[QualityRow], device: str) -> list[QualityRow]:
    """The first row of each cell of a device that has scores, in the order of the results."""
    scored = (r for r in rows if r.device == device and r.metric)
    return [first for first, *_ in text.grouped(scored, lambda r: r.key).values()]


def score_text(score: Score | None, metric: str) -> tuple[str, str]:
    """A value and its interval: a share in per cent, a loss as a number."""
    if score is None:
        return text.DASH, ""
    if metric in LOSSES:
        return text.number(score.value, 3), text.interval(score.low, score.high)
    if score.low is None or score.high is None:
        return text.share(score.value), ""
    low = text.share(score.low).removesuffix("%")
    return text.share(score.value), f"{low}{text.DASH}{text.share(score.high)}"
