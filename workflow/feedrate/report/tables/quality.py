"""Scores of models before and after training, on pictures that were not used for training."""

from collections.abc import Iterator, Sequence

from feedrate.report import text
from feedrate.report.context import PageSettings
from feedrate.report.markup import Markup, el, group_row, noted, row, table
from feedrate.report.rows import Inputs, ScoreRow
from feedrate.report.scores import METRICS, SPLITS, cells_of, gain_text, pick

ORDER = 30


def render(settings: PageSettings, inputs: Inputs) -> Markup:
    """A row for each cell and score, by device and split."""
    scores = inputs.scores(settings.study)
    if not scores:
        return el("p", "No run of this study was evaluated before and after training.")
    columns = ("Score", "Before", "After", "Gain (points)", "By chance", "Answers")
    heads = [settings.factor_labels, *columns]
    lines: list[Markup] = []
    for device in settings.measured:
        for split in SPLITS:
            lines.append(group_row(f"{settings.label(device)}, {split}", len(heads)))
            lines += _split(scores, device, split)
    return table(heads, lines)


def _split(scores: Sequence[ScoreRow], device: str, split: str) -> Iterator[Markup]:
    for cell in cells_of(scores, device):
        for metric, name in METRICS.items():
            if score := pick(scores, cell, split, metric):
                shares = text.share(score.before), text.share(score.after)
                gain, chance = noted(*gain_text(score)), text.share(score.chance)
                fields = [name, *shares, gain, chance, str(score.n)]
                mine = [one for one in scores if one.key == cell.key]
                yield row(text.values_text(cell.levels), *fields, of=mine)
