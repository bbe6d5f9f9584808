"""The audit of the source: its contradictions, and each published number by edition."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from feedrate.config.sheets import Sources
from feedrate.config.study import Published
from feedrate.config.values import cell_name
from feedrate.report import text
from feedrate.report.markup import Markup, el, group_row, join, noted, row, table
from feedrate.report.params import PageSettings
from feedrate.report.rows import ClaimRow, Inputs
from feedrate.results import audit
from feedrate.results.claims import agrees
from feedrate.results.comparability import stated

NEEDS = ("published", "peaks", "claims")
ORDER = 200

HEADS = (
    *("Edition", "Value", "Ratio to previous", "Timed", "MFU", "Batch", "Software"),
    "Source and protocol",
)


def render(settings: PageSettings, inputs: Inputs) -> Markup:
    """A group of rows for each device and cell, with the oldest edition first."""
    published = settings.published
    if not published:
        return el("p", "The study has no published numbers.")

    def name(entry: Published) -> str:
        """The device, the cell and, unless it is the throughput, the metric of a number."""
        levels = text.levels_text(entry.levels) or "settings not stated"
        metric = f", {entry.metric}" if entry.metric != audit.RATE else ""
        device = f"{settings.label(entry.device)}, {text.counted(entry.count, 'device')}"
        return f"{text.with_remark(device, _assumed(entry, settings.sources))}: {levels}{metric}"

    rated = [
        (entry, audit.rate(entry, precision, settings.peaks[entry.device]))
        for entry, precision in zip(published, settings.precisions, strict=True)
    ]
    claims = inputs.rows("claims.csv", ClaimRow, settings.study)
    marks = {entry.id: _mark(entry, settings, claims) for entry in published}
    order = {edition: place for place, edition in enumerate(settings.origin.editions)}
    rows: list[Markup] = []
    for heading, group in text.grouped(rated, lambda one: name(one[0])).items():
        rows.append(group_row(heading, len(HEADS)))
        group.sort(key=lambda one: order.get(one[0].edition, len(order)))
        rows += _rows(group, marks)
    remarks = [
        *_text_and_table(claims),
        *(audit.excess(name(one), found, settings.peaks[one.device]) for one, found in rated),
        *audit.miscounts(published, name),
        *audit.doubles(published, name),
        *audit.drift(published, name),
    ]
    listed = el("ul", *(el("li", one) for one in remarks if one))
    return join(listed, table(HEADS, rows, "texts"))


def _text_and_table(claims: Iterable[ClaimRow]) -> Iterator[str]:
    both = [c for c in claims if c.published_value and c.recomputed_from_published]
    wrong = [c for c in both if not agrees(c.recomputed_from_published, c.published_value)]
    if both:
        agree = f"{len(both) - len(wrong)} of {len(both)} printed ratios agree"
        yield f"{agree} with the source's own table to their last digit."
    for claim in wrong:
        table_s = text.number(claim.recomputed_from_published)
        yield f"{claim.statement}: {claim.published_value:g} printed, {table_s} by the table."


def _assumed(entry: Published, sources: Sources) -> str:
    """The device or count in a heading, if the sheet of the number's source does not state it."""
    clear = {item for item, fact in stated(entry, sources).items() if len(fact.values) == 1}
    items = {"device": "the device", "devices": "the number of devices"}
    unsaid = [words for item, words in items.items() if item not in clear]
    words = f"assumed: the source does not state {' or '.join(unsaid)}"
    return words * bool(entry.sheet and unsaid)


def _mark(entry: Published, settings: PageSettings, claims: Iterable[ClaimRow]) -> str:
    """The use of the number: verdicts on claims about its cell, or comparisons of rates."""
    levels = settings.baseline | entry.levels
    cell = f"{entry.device}/{cell_name({name: levels[name] for name in settings.factors})}"
    headlines = {one.edition for one in settings.published if one.headline}
    used = entry.levels and any(
        cell in claim.cells.split(";") and entry.edition in claim.edition.split(";")
        for claim in claims
        if claim.of == "source" or claim.recomputed_from_published is not None
    )
    if used and (entry.headline or entry.edition not in headlines):
        return "used for claims"
    return "used for comparisons" * (entry.headline and entry.metric == audit.RATE)


def _rows(
    group: Sequence[tuple[Published, audit.Rate]], marks: Mapping[str, str]
) -> Iterator[Markup]:
    for (previous, _), (entry, found) in zip([(None, None), *group], group, strict=False):
        peak = f"in {found.precision}{', above the peak' * ((found.mfu or 0) > 1)}"
        yield row(
            noted(entry.edition, marks[entry.id]),
            f"{text.exact(entry.value)} {entry.unit}",
            text.ratio(entry.value / previous.value if previous else None),
            text.seconds(found.timed_s),
            noted(text.share(found.mfu), peak * bool(found.mfu)),
            str(entry.batch_size or text.DASH),
            entry.software or text.DASH,
            noted(entry.source, entry.protocol),
        )
