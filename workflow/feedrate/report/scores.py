"""Scores of models before and after training, over the repeats of a cell."""

from collections.abc import Iterable

from feedrate.report import text
from feedrate.report.rows import CellOf, ScoreRow
from feedrate.results.record import Score

MATCHING = "matching_accuracy"
METRICS = {
    MATCHING: "Right caption of five",
    "image_to_text_recall_at_1": "Nearest caption is the image's",
    "text_to_image_recall_at_1": "Nearest image is the caption's",
    "accuracy": "Accuracy",
}
"""Metrics of a split in the order of the table, with their names."""
WINOGROUND = {
    "text_score": "Text score",
    "image_score": "Image score",
    "group_score": "Group score",
}
SPLITS = ("validation", "test")


def over_repeats(rows: Iterable[ScoreRow]) -> Score | None:
    """One score of one cell over all repeats: means, and the outermost ends of the intervals."""
    scores = [row.score for row in rows]
    if not scores:
        return None

    def known(name: str) -> list[float]:
        return [value for one in scores if (value := getattr(one, name)) is not None]

    def mean(name: str) -> float | None:
        values = known(name)
        return sum(values) / len(values) if values else None

    return Score(
        on=scores[0].on,
        metric=scores[0].metric,
        before=mean("before"),
        after=mean("after"),
        gain_low=min(known("gain_low"), default=None),
        gain_high=max(known("gain_high"), default=None),
        n=scores[0].n,
        chance=scores[0].chance,
    )


def pick(rows: Iterable[ScoreRow], cell: CellOf, on: str, metric: str) -> Score | None:
    """The score of a cell on a split, or on Winoground, by a metric."""
    wanted = (*cell.key, on, metric)
    return over_repeats(r for r in rows if (*r.key, r.score.on, r.score.metric) == wanted)


def cells_of(rows: Iterable[ScoreRow], device: str) -> list[ScoreRow]:
    """The first row of each cell of a device that has scores, in the order of the results."""
    scored = (row for row in rows if row.device == device)
    return [first for first, *_ in text.grouped(scored, lambda row: row.key).values()]


def gain_text(score: Score) -> tuple[str, str]:
    """The gain by training in percentage points, and its interval."""
    if score.before is None or score.after is None:
        return text.DASH, ""
    gain = f"{100 * (score.after - score.before):+.0f}"
    if score.gain_low is None or score.gain_high is None:
        return gain, ""
    return gain, f"{100 * score.gain_low:+.0f} to {100 * score.gain_high:+.0f}"
