"""The audit of the source: its contradictions, then each number by edition."""

from typing import Any, NamedTuple

from feedrate.config.study import Published
from feedrate.report import text
from feedrate.report.audit import RATE, contradictions, published_mfu
from feedrate.report.study import StudyResults, level_key
from feedrate.report.table import Column, Field, Table, Wide
from feedrate.results.comparability import stated


class Number(NamedTuple):
    """A published number; `previous` is the value of the edition before."""

    row: Published
    mfu: float | None
    previous: float | None


def rows(study: StudyResults) -> list[Any]:
    """The contradictions, then a group of rows for each device and cell, oldest edition first."""
    plan, editions = study.plan, study.study.source.editions
    rows: list[Any] = [
        Wide(Field(f"Contradiction {place}"), Field(one.text))
        for place, one in enumerate(contradictions(plan), 1)
    ]
    groups = text.grouped(
        plan.published, lambda row: (row.device, row.count, level_key(row.levels), row.metric)
    )
    for group in groups.values():
        group.sort(key=lambda r: editions.index(r.edition) if r.edition in editions else 99)
        rows.append(_name(study, group[0]))
        values = [None, *(row.value for row in group)]
        for row, previous in zip(group, values, strict=False):
            rows.append(Number(row, published_mfu(plan, row), previous))
    return rows


def _name(study: StudyResults, row: Published) -> str:
    """The device, the cell and, unless it is the throughput, the metric of a number; and what of it
    the sheet of the number's source does not state."""
    facts = stated(row, study.plan.sources).items()
    clear = {item for item, fact in facts if len(fact.values) == 1}
    items = {"device": "the device", "devices": "the number of devices"}
    missing = [words for item, words in items.items() if row.sheet and item not in clear]
    assumed = f" (the source does not state {' or '.join(missing)})" if missing else ""
    metric = f", {row.metric}" if row.metric != RATE else ""
    device = f"{study.label(row.device)}, {text.counted(row.count, 'device')}"
    return f"{device}{assumed}: {text.levels_text(row.levels) or 'settings not stated'}{metric}"


def _timed_s(number: Number) -> float | None:
    row = number.row
    return row.timed_samples / row.value if row.timed_samples else None


def _columns(_: StudyResults) -> list[Column]:
    return [
        Column("Edition", "row.edition"),
        Column("Value", lambda one: f"{text.exact(one.row.value)} {one.row.unit}"),
        Column(
            "Against the edition before",
            lambda one: one.row.value / one.previous if one.previous else None,
            text.change,
            optional=True,
        ),
        Column("Timed", _timed_s, text.seconds, optional=True),
        Column("MFU", "mfu", text.share, optional=True),
        Column("Batch", "row.batch_size", text.integer, optional=True),
        Column("Software", "row.software", optional=True),
        Column("Source", lambda one: Field(one.row.source, [one.row.protocol])),
    ]


TABLES = (Table("audit", "The source, audited", "source", 41, rows, _columns, align="texts"),)
