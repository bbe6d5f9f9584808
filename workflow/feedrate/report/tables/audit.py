"""The audit of the source: its contradictions, then each number by edition."""

from typing import NamedTuple

from feedrate.config.study import Published, Sources
from feedrate.report import text
from feedrate.report.audit import RATE, Contradiction, contradictions, level_key, published_mfu
from feedrate.report.study import StudyResults
from feedrate.report.table import Column, Field, Table, Wide
from feedrate.results.comparability import stated


class Number(NamedTuple):
    """A published number."""

    row: Published
    precision: str
    mfu: float | None
    previous: float | None
    """The value of the edition before."""


def rows(study: StudyResults) -> list[object]:
    """The contradictions, then a group of rows for each device and cell, oldest edition first."""
    plan = study.plan
    found = contradictions(plan)
    rows: list[object] = (
        ["Contradictions", *(_contradiction(study, one) for one in found)] if found else []
    )
    editions = study.study.source.editions
    for group in text.grouped(
        plan.published, lambda r: (r.device, r.count, level_key(r), r.metric)
    ).values():
        group.sort(
            key=lambda r: editions.index(r.edition) if r.edition in editions else len(editions)
        )
        rows.append(_name(study, group[0]))
        for row, previous in zip(group, [None, *group], strict=False):
            rows.append(
                Number(row, *published_mfu(plan, row), previous.value if previous else None)
            )
    return rows


def _contradiction(study: StudyResults, one: Contradiction) -> Wide:
    if one.claim is not None:
        words = f"{text.ratio(one.printed)} is printed; its table gives {text.ratio(one.against)}"
        return Wide("A ratio against its own table", Field(words, [one.claim.text]))
    first, last = one.numbers[0], one.numbers[-1]
    where = f"{study.label(first.device)}, {text.levels_text(first.levels)}"
    if one.kind == "same number":
        settings = text.listed(text.levels_text(row.levels) for row in one.numbers)
        words = f"{text.exact(one.printed)} {first.unit} is printed for {settings}"
        return Wide(f"{study.label(first.device)}, {first.edition}", Field(words, [first.source]))
    if one.kind == "parameters":
        words = f"{text.exact(one.printed)} are printed; the model has {text.exact(one.against)}"
        return Wide(f"Parameters, {first.edition}", Field(words, [first.protocol]))
    apart = text.percent(one.against / one.printed - 1)
    words = (
        f"{text.exact(one.printed)} ({first.edition}) to {text.exact(one.against)} ({last.edition})"
    )
    return Wide(where, f"{apart}% apart between editions: {words} {first.unit}")


def _name(study: StudyResults, row: Published) -> str:
    """The device, the cell and, unless it is the throughput, the metric of a number."""
    levels = text.levels_text(row.levels) or "settings not stated"
    metric = f", {row.metric}" if row.metric != RATE else ""
    device = f"{study.label(row.device)}, {text.counted(row.count, 'device')}"
    return f"{device}{_assumed(row, study.plan.sources)}: {levels}{metric}"


def _assumed(row: Published, sources: Sources) -> str:
    """A remark on the device or count, if the sheet of the number's source does not state it."""
    clear = {item for item, fact in stated(row, sources).items() if len(fact.values) == 1}
    items = {"device": "the device", "devices": "the number of devices"}
    missing = [words for item, words in items.items() if item not in clear]
    if not (row.sheet and missing):
        return ""
    return f" (assumed: the source does not state {' or '.join(missing)})"


def _mfu(number: Number) -> Field:
    above = ", above the peak" if number.mfu and number.mfu > 1 else ""
    return Field(text.share(number.mfu), [f"in {number.precision}{above}" if number.mfu else ""])


def _change(number: Number) -> str:
    return text.change(number.row.value / number.previous if number.previous else None)


def _timed_s(number: Number) -> float | None:
    return number.row.timed_samples / number.row.value if number.row.timed_samples else None


TABLES = (
    Table(
        "audit",
        "The source, audited",
        "source",
        41,
        rows,
        [
            Column("Edition", "row.edition"),
            Column("Value", lambda one: f"{text.exact(one.row.value)} {one.row.unit}"),
            Column("Against the edition before", _change, optional=True),
            Column("Timed", _timed_s, text.seconds, optional=True),
            Column("MFU", _mfu, optional=True),
            Column("Batch", "row.batch_size", text.integer, optional=True),
            Column("Software", "row.software", optional=True),
            Column("Source", lambda one: Field(one.row.source, [one.row.protocol])),
        ],
        align="texts",
    ),
)
