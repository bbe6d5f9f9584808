"""The published numbers by edition of the source."""

from collections.abc import Sequence

from feedrate.config.study import Published
from feedrate.report import text
from feedrate.report.markup import Markup, as_page, el, group_row, join, row, small, table
from feedrate.report.params import PageSettings
from feedrate.report.rows import Inputs

NEEDS = ("published",)
ORDER = 200

HEADS = ("Edition", "Value", "Ratio to previous", "Batch", "Software", "Source and protocol")


@as_page
def render(settings: PageSettings, inputs: Inputs) -> Markup:  # noqa: ARG001 (all from config)
    """A group of rows for each device and cell, with the oldest edition first."""
    if not settings.published:
        return el("p", "The study has no published numbers.")
    order = {edition: place for place, edition in enumerate(settings.origin.editions)}
    rows: list[Markup] = []
    for name, group in text.grouped(settings.published, lambda one: _name(settings, one)).items():
        rows.append(group_row(name, len(HEADS)))
        group = sorted(group, key=lambda entry: order.get(entry.edition, len(order)))
        rows += _rows(group)
    return table(HEADS, rows, "texts")


def _name(settings: PageSettings, entry: Published) -> str:
    """The device, the cell and, unless it is the throughput, the metric of a number."""
    count = text.count(entry.count, "device")
    levels = text.levels_text(entry.levels) or "settings not stated"
    metric = f", {entry.metric}" if entry.metric != "samples_per_s" else ""
    return f"{settings.label(entry.device)}, {count}: {levels}{metric}"


def _rows(group: Sequence[Published]) -> list[Markup]:
    return [
        row(
            join(entry.edition, small("used for claims" * entry.headline)),
            f"{text.exact(entry.value)} {entry.unit}",
            text.ratio(entry.value / previous.value if previous else None),
            str(entry.batch_size or text.DASH),
            entry.software or text.DASH,
            join(entry.source, small(entry.protocol)),
        )
        for previous, entry in zip([None, *group], group, strict=False)
    ]
