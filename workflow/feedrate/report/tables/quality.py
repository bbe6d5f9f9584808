"""What models score before and after training, on pictures that they were not trained on."""

from collections.abc import Iterator, Sequence

from feedrate.report import text
from feedrate.report.grid import factor_label
from feedrate.report.markup import Markup, el, group_row, join, row, small, table, wide_row, word
from feedrate.report.qualities import LOSSES, METRICS, SPLITS, Key, cells_of, pick, said, took_s
from feedrate.report.rows import Inputs, QualityRow
from feedrate.report.settings import TableSettings


def render(settings: TableSettings, inputs: Inputs) -> Markup:
    """Two rows a cell and split, before and after; in groups by device and split."""
    found = inputs.scores(settings.study)
    if not found:
        return el("p", "No run of this study has kept its weights.")
    metrics = [m for m in METRICS if any(r.metric == m and r.on in SPLITS for r in found)]
    factors = ", ".join(factor_label(settings, name) for name in settings.factors)
    heads = [factors, "Moment", *(METRICS[metric] for metric in metrics), "Scored in"]
    rows: list[Markup] = []
    for device in settings.measured:
        for split in SPLITS:
            rows.append(group_row(f"{settings.label(device)}, {split}", len(heads)))
            rows += _split(found, device, split, metrics)
        rows += _not_scored(found, device, len(heads))
    return table(heads, rows)


def _split(
    found: Sequence[QualityRow], device: str, split: str, metrics: Sequence[str]
) -> Iterator[Markup]:
    cells = cells_of(found, device)
    for cell in cells:
        for moment in ("before", "after"):
            yield _row(found, cell, split, moment, metrics)
    if cells:
        yield row(["by chance", "", *(_chance(found, split, metric) for metric in metrics), ""])


def _row(
    found: Sequence[QualityRow], cell: Key, split: str, moment: str, metrics: Sequence[str]
) -> Markup:
    levels = next(one.levels for one in found if (one.device, one.cell) == cell)
    texts = [
        said(pick(found, on=split, metric=metric, cell=cell, moment=moment), metric)
        for metric in metrics
    ]
    scores = [join(value, small(ends)) for value, ends in texts]
    took = text.seconds(took_s(found, cell, split, moment))
    return row([text.values_text(levels), moment, *scores, took], "use" * (moment == "after"))


def _chance(found: Sequence[QualityRow], split: str, metric: str) -> str:
    known = (r.chance for r in found if (r.on, r.metric) == (split, metric))
    chance = next((one for one in known if one is not None), None)
    return text.number(chance, 3) if metric in LOSSES else text.share(chance)


def _not_scored(found: Sequence[QualityRow], device: str, width: int) -> Iterator[Markup]:
    for one in found:
        if one.device == device and one.status != "ok":
            name = f"{text.values_text(one.levels)}, repeat {one.repeat}"
            yield wide_row(name, join(word("not scored"), small(one.cause)), width)
