"""The audit of the source: its contradictions, then each number by edition."""

from typing import Any, NamedTuple

from feedrate.config.study import Published
from feedrate.report import text
from feedrate.report.audit import changes, contradictions, published_mfu
from feedrate.report.rows import level_key
from feedrate.report.study import StudyResults
from feedrate.report.table import Column, Field, Table, wide
from feedrate.results.statistics import RATE


class Number(NamedTuple):
    """A published number."""

    row: Published
    mfu: float | None
    change: float | None  # over the value of the edition before
    timed_s: float | None


def rows(study: StudyResults) -> list[Any]:
    """The contradictions and changes, then a group for each device and cell, by edition."""
    plan, order = study.plan, study.study.source.editions
    rows: list[Any] = [wide("Contradiction", words) for words in contradictions(plan)]
    rows += [wide("Changed", words) for words in changes(plan)]
    groups = text.grouped(
        plan.published, lambda row: (row.device, row.count, level_key(row.levels), row.metric)
    )
    for (device, count, _, metric), group in groups.items():
        group.sort(key=lambda row: order.index(row.edition) if row.edition in order else len(order))
        levels = text.levels_text(group[0].levels) or "settings not stated"
        name = f"{study.label(device)}, {text.counted(count, 'device')}: {levels}"
        rows.append(f"{name}, {metric}" if metric != RATE else name)
        before: float | None = None
        for row in group:
            timed_s = row.timed_samples / row.value if row.timed_samples else None
            change = row.value / before if before else None
            rows.append(Number(row, published_mfu(plan, row), change, timed_s))
            before = row.value
    return rows


def _columns(_: StudyResults) -> list[Column]:
    return [
        Column("Edition", "row.edition"),
        Column("Value", lambda one: f"{text.exact(one.row.value)} {one.row.unit}"),
        Column("Against the edition before", "change", text.change, optional=True),
        Column("Timed", "timed_s", text.seconds, optional=True),
        Column("MFU", "mfu", text.share, optional=True),
        Column("Batch", "row.batch_size", text.integer, optional=True),
        Column("Software", "row.software", optional=True),
        Column("Source", "row", lambda row: Field(row.source, [row.protocol])),
    ]


TABLES = (Table("audit", "The source, audited", "source", 41, rows, _columns, align="texts"),)
