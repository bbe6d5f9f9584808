"""Scores of models before and after training, on pictures that were not used for training."""

from collections.abc import Iterator, Sequence

from feedrate.report import text
from feedrate.report.markup import Markup, el, group_row, not_scored_rows, row, score_field, table
from feedrate.report.params import PageSettings
from feedrate.report.rows import Inputs, QualityRow
from feedrate.report.scores import LOSSES, METRICS, MOMENTS, SPLITS, cells_of, pick

NEEDS = ("scores",)
ORDER = 30


def render(settings: PageSettings, inputs: Inputs) -> Markup:
    """Two rows for each cell and split, before and after training; by device and split."""
    found = inputs.scores(settings.study)
    if not found:
        return el("p", "No run of this study has kept its weights.")
    metrics = [m for m in METRICS if any(r.metric == m and r.on in SPLITS for r in found)]
    named = [METRICS[metric] for metric in metrics]
    heads = [settings.factor_labels, "Moment", *named, "Scoring time"]
    lines: list[Markup] = []
    for device in settings.measured:
        mine = [one for one in found if one.device == device]
        for split in SPLITS:
            lines.append(group_row(f"{settings.label(device)}, {split}", len(heads)))
            lines += _split([one for one in mine if one.on == split], device, split, metrics)
        lines += not_scored_rows(mine, len(heads))
    return table(heads, lines)


def _split(
    found: Sequence[QualityRow], device: str, split: str, metrics: Sequence[str]
) -> Iterator[Markup]:
    cells = cells_of(found, device)
    for cell in cells:
        for moment in MOMENTS:
            mine = [one for one in found if (one.cell, one.moment) == (cell.cell, moment)]
            scores = [score_field(pick(mine, cell, split, m, moment), m) for m in metrics]
            took_s = max((one.seconds for one in mine if one.seconds is not None), default=None)
            fields = [moment, *scores, text.seconds(took_s)]
            use = "use" * (moment == "after")
            yield row(text.values_text(cell.levels), *fields, class_=use, of=mine)
    if cells:
        yield row("by chance", "", *(_chance(found, metric) for metric in metrics), "")


def _chance(found: Sequence[QualityRow], metric: str) -> str:
    known = (one.chance for one in found if one.metric == metric and one.chance is not None)
    chance = next(known, None)
    return text.number(chance, 3) if metric in LOSSES else text.share(chance)
