"""How the published numbers drift between editions of the source."""

from collections.abc import Sequence

from feedrate.config.published import Published
from feedrate.report import text
from feedrate.report.markup import Markup, el, group_row, join, row, small, table
from feedrate.report.rows import Inputs
from feedrate.report.settings import TableSettings

_HEADS = ("Edition", "Value", "Over the one before", "Batch", "Software", "Source and protocol")


def render(settings: TableSettings, inputs: Inputs) -> Markup:  # noqa: ARG001 (all from config)
    """A group of rows for each device and cell, the oldest edition first."""
    if not settings.published:
        return el("p", "The study has no published numbers.")
    order = {edition: place for place, edition in enumerate(settings.origin.editions)}
    rows: list[Markup] = []
    for name, group in _groups(settings).items():
        rows.append(group_row(name, len(_HEADS)))
        group = sorted(group, key=lambda entry: order.get(entry.edition, len(order)))
        rows += _rows(group)
    return table(_HEADS, rows, "texts")


def _groups(settings: TableSettings) -> dict[str, list[Published]]:
    groups: dict[str, list[Published]] = {}
    for entry in settings.published:
        count = text.count(entry.count, "device")
        levels = text.levels_text(entry.levels) or "settings not said"
        metric = f", {entry.metric}" if entry.metric != "samples_per_s" else ""
        name = f"{settings.label(entry.device)}, {count}: {levels}{metric}"
        groups.setdefault(name, []).append(entry)
    return groups


def _rows(group: Sequence[Published]) -> list[Markup]:
    rows = []
    before: Published | None = None
    for entry in group:
        rows.append(
            row(
                [
                    join(entry.edition, small("used for claims" * entry.headline)),
                    f"{text.exact(entry.value)} {entry.unit}",
                    text.ratio(entry.value / before.value if before else None),
                    str(entry.batch_size or text.DASH),
                    entry.software or text.DASH,
                    join(entry.source, small(entry.protocol)),
                ]
            )
        )
        before = entry
    return rows
