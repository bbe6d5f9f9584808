"""The audit of the source: each published number by edition, with its time and its MFU."""

from collections.abc import Iterable

from feedrate.config.study import Published, Sources
from feedrate.config.values import cell_name
from feedrate.report import text
from feedrate.report.context import PageSettings
from feedrate.report.markup import Markup, el, group_row, noted, row, table
from feedrate.report.rows import ClaimRow, Inputs
from feedrate.results.comparability import stated

RATE = "samples_per_s"
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
        metric = f", {entry.metric}" if entry.metric != RATE else ""
        device = f"{settings.label(entry.device)}, {text.counted(entry.count, 'device')}"
        return f"{text.with_remark(device, _assumed(entry, settings.sources))}: {levels}{metric}"

    claims = inputs.rows("claims.csv", ClaimRow, settings.study)
    marks = {entry.id: _mark(entry, settings, claims) for entry in published}
    order = {edition: place for place, edition in enumerate(settings.origin.editions)}
    rows: list[Markup] = []
    numbers = list(zip(published, settings.precisions, strict=True))
    for heading, group in text.grouped(numbers, lambda pair: name(pair[0])).items():
        rows.append(group_row(heading, len(HEADS)))
        group.sort(key=lambda pair: order.get(pair[0].edition, len(order)))
        previous = None
        for entry, precision in group:
            peak = settings.peaks[entry.device].get(precision)
            rows.append(_row(entry, previous, precision, peak, marks[entry.id]))
            previous = entry.value
    return table(HEADS, rows, "texts")


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
    return "used for comparisons" if entry.headline and entry.metric == RATE else ""


def _row(
    entry: Published, previous: float | None, precision: str, peak: float | None, mark: str
) -> Markup:
    """A number's row; `previous` is the one before, `peak` its device's in `precision`, TFLOP/s."""
    timed_s = entry.timed_samples / entry.value if entry.timed_samples else None
    flops = entry.flops_per_sample
    mfu = flops * entry.value / entry.count / 1e12 / peak if flops and peak else None
    above = ", above the peak" if mfu and mfu > 1 else ""
    return row(
        noted(entry.edition, mark),
        f"{text.exact(entry.value)} {entry.unit}",
        text.ratio(entry.value / previous if previous else None),
        text.seconds(timed_s),
        noted(text.share(mfu), f"in {precision}{above}" if mfu else ""),
        str(entry.batch_size or text.DASH),
        entry.software or text.DASH,
        noted(entry.source, entry.protocol),
    )
