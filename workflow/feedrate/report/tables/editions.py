"""The audit of the source: each published number by edition, with its time and its MFU."""

from collections.abc import Iterable
from typing import NamedTuple

from feedrate.config.study import Published, Sources
from feedrate.config.values import cell_name
from feedrate.report import text
from feedrate.report.context import PageSettings
from feedrate.report.rows import ClaimRow, Inputs
from feedrate.report.table import Column, Field, Row, Table
from feedrate.results.comparability import stated

KINDS = {"editions": 200}

RATE = "samples_per_s"


class Number(NamedTuple):
    """A published number with what its row says of it."""

    entry: Published
    precision: str
    peak: float | None  # of its device in this precision, TFLOP/s
    mark: str
    previous: float | None = None  # the value of the edition before


def editions(settings: PageSettings, inputs: Inputs) -> Table | str:
    """A group of rows for each device and cell, with the oldest edition first."""
    if not settings.published:
        return "The study has no published numbers."
    claims = inputs.rows("claims.csv", ClaimRow, settings.study)
    numbers = [
        Number(
            entry,
            precision,
            settings.peaks[entry.device].get(precision),
            _mark(entry, settings, claims),
        )
        for entry, precision in zip(settings.published, settings.precisions, strict=True)
    ]
    order = {edition: place for place, edition in enumerate(settings.origin.editions)}
    rows: list[Row | str] = []
    for heading, group in text.grouped(numbers, lambda one: _name(one.entry, settings)).items():
        rows.append(heading)
        group.sort(key=lambda one: order.get(one.entry.edition, len(order)))
        values = [None, *(one.entry.value for one in group)]
        for one, previous in zip(group, values, strict=False):
            edition = Field(one.entry.edition, [one.mark])
            rows.append(Row(edition, one._replace(previous=previous)))
    return Table("Edition", COLUMNS, rows, "texts")


def _name(entry: Published, settings: PageSettings) -> str:
    """The device, the cell and, unless it is the throughput, the metric of a number."""
    levels = text.levels_text(entry.levels) or "settings not stated"
    metric = f", {entry.metric}" if entry.metric != RATE else ""
    device = f"{settings.label(entry.device)}, {text.counted(entry.count, 'device')}"
    return f"{text.with_remark(device, _assumed(entry, settings.sources))}: {levels}{metric}"


def _assumed(entry: Published, sources: Sources) -> str:
    """The device or count in a heading, if the sheet of the number's source does not state it."""
    clear = {item for item, fact in stated(entry, sources).items() if len(fact.values) == 1}
    items = {"device": "the device", "devices": "the number of devices"}
    unsaid = [words for item, words in items.items() if item not in clear]
    if not (entry.sheet and unsaid):
        return ""
    return f"assumed: the source does not state {' or '.join(unsaid)}"


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


def _timed_s(number: Number) -> float | None:
    entry = number.entry
    return entry.timed_samples / entry.value if entry.timed_samples else None


def _mfu(number: Number) -> Field:
    entry, peak, flops = number.entry, number.peak, number.entry.flops_per_sample
    mfu = flops * entry.value / entry.count / 1e12 / peak if flops and peak else None
    above = ", above the peak" if mfu and mfu > 1 else ""
    return Field(text.share(mfu), [f"in {number.precision}{above}" if mfu else ""])


COLUMNS = [
    Column("Value", lambda one: f"{text.exact(one.entry.value)} {one.entry.unit}"),
    Column(
        "Ratio to previous",
        lambda one: one.entry.value / one.previous if one.previous else None,
        text.ratio,
    ),
    Column("Timed", _timed_s, text.seconds),
    Column("MFU", _mfu),
    Column("Batch", lambda one: str(one.entry.batch_size or text.DASH)),
    Column("Software", lambda one: one.entry.software or text.DASH),
    Column("Source and protocol", lambda one: Field(one.entry.source, [one.entry.protocol])),
]
