"""Scores of models as pages show them: of a cell's repeats together, before and after training."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from feedrate.config.values import BETWEEN_LEVELS, Level, parse_levels
from feedrate.report import text
from feedrate.report.rows import CellRow, QualityRow

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
Key = tuple[str, str]
"""A device and a cell."""
LOSSES = ("contrastive_loss", "loss")
SPLITS = ("validation", "test")


@dataclass(frozen=True)
class Shown:
    """A metric over the repeats of a cell: the mean, and the widest of their intervals' ends."""

    value: float | None
    low: float | None
    high: float | None
    chance: float | None
    n: int
    repeats: int


class Gain(NamedTuple):
    """What training added to a metric of a cell."""

    before: Shown
    after: Shown
    added: float


def over_repeats(rows: Iterable[QualityRow]) -> Shown | None:
    """One metric of one cell at one moment, all repeats; None where there is none."""
    found = list(rows)
    if not found:
        return None
    known = [row for row in found if row.value is not None]
    values = [row.value for row in known if row.value is not None]
    return Shown(
        value=sum(values) / len(values) if values else None,
        low=min((row.low for row in known if row.low is not None), default=None),
        high=max((row.high for row in known if row.high is not None), default=None),
        chance=next((row.chance for row in found if row.chance is not None), None),
        n=max(row.n for row in found),
        repeats=len(values),
    )


def pick(
    rows: Sequence[QualityRow], *, on: str, metric: str, cell: Key, moment: str
) -> Shown | None:
    """`over_repeats` of what these name; `cell` is device and cell."""
    return over_repeats(
        row
        for row in rows
        if (row.on, row.metric, row.moment) == (on, metric, moment)
        and (row.device, row.cell) == cell
    )


def cells_of(rows: Iterable[QualityRow], device: str) -> list[Key]:
    """The cells of a device that have scores, in the order of the results."""
    return list(dict.fromkeys((r.device, r.cell) for r in rows if r.device == device and r.metric))


def said(shown: Shown | None, metric: str) -> tuple[str, str]:
    """A value and its interval in words: `41%`, and 36 to 47 with one sign; a loss in digits."""
    if shown is None or shown.value is None:
        return text.DASH, ""
    if metric in LOSSES:
        return text.number(shown.value, 3), text.interval(shown.low, shown.high)
    if shown.low is None or shown.high is None:
        return text.share(shown.value), ""
    ends = f"{text.share(shown.low).removesuffix('%')}{text.DASH}{text.share(shown.high)}"
    return text.share(shown.value), ends


def took_s(rows: Iterable[QualityRow], cell: Key, split: str, moment: str) -> float | None:
    """What scoring a split took, the longest of the repeats, s."""
    wanted = (*cell, split, moment)
    took = [r.seconds for r in rows if (r.device, r.cell, r.on, r.moment) == wanted]
    return max((one for one in took if one is not None), default=None)


def headline(rows: Sequence[QualityRow], device: str, baseline: dict[str, Level]) -> str:
    """What training added on the test split, in the baseline's cell of a device or, where that has
    no scores, in the one that gained most; empty where it added nothing."""
    cells = cells_of(rows, device)
    gains = {cell: gain for cell in cells if (gain := _gain(rows, cell))}
    own = [cell for cell in gains if parse_levels(cell[1], BETWEEN_LEVELS) == baseline]
    if not gains:
        return ""
    cell = own[0] if own else max(gains, key=lambda one: gains[one].added)
    gain = gains[cell]
    if gain.added <= 0:
        return ""
    sentence = (
        f"training raises the share of captions chosen right of five from "
        f"{text.share(gain.before.value)} to {text.share(gain.after.value)} "
        f"({said(gain.after, MATCHING)[1]}; by chance {text.share(gain.after.chance)})"
    )
    if len(cells) == 1:
        return sentence
    return f"{sentence} with {text.levels_text(parse_levels(cell[1], BETWEEN_LEVELS))}"


def _gain(rows: Sequence[QualityRow], cell: Key) -> Gain | None:
    """Of the accuracy on the test split; None where it is not known at both moments."""
    before, after = (
        pick(rows, on="test", metric=MATCHING, cell=cell, moment=moment)
        for moment in ("before", "after")
    )
    if not (before and after) or before.value is None or after.value is None:
        return None
    return Gain(before, after, after.value - before.value)


def points(cells: Iterable[CellRow], rows: Sequence[QualityRow]) -> list[tuple[str, str]]:
    """What else there is to say, as (lead, sentence): equal quality, and what scoring cost."""
    compared = [cell for cell in cells if cell.loss_shift is not None]
    other = [text.values_text(cell.levels) for cell in compared if cell.loss_departs]
    found: list[tuple[str, str]] = []
    if other:
        found.append(
            ("Other quality", f"the loss of {'; '.join(other)} departs by more than seeds do.")
        )
    elif compared:
        count = text.count(len(compared), "setting")
        found.append(
            ("Equal quality", f"no loss departs by more than seeds do ({count} compared).")
        )
    took = {(r.device, r.cell, r.repeat): r.job_s for r in rows if r.status == "ok" and r.job_s}
    if took:
        mean_s = sum(one or 0.0 for one in took.values()) / len(took)
        said_ = f"{text.seconds(mean_s)} a model on average, before and after together"
        found.append(("Cost of scoring", f"{said_} ({text.count(len(took), 'model')})."))
    return found
