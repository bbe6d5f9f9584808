"""The training data: counts, sizes, and the files left out with the reason."""

from typing import Any

import msgspec

from feedrate.data.manifest import LeftOut
from feedrate.report import text
from feedrate.report.study import StudyResults
from feedrate.report.table import Column, Field, Table, Wide

LISTED = 10
"""Left-out files that the table names."""
_MEASURES = {
    "width_px": "Width (px)",
    "height_px": "Height (px)",
    "megapixels": "Area (megapixels)",
    "kilobytes": "File size (kB)",
    "caption_words": "Words in a caption",
}
_MARKS = {
    "min": "Smallest", "p5": "5%", "median": "Median", "mean": "Mean", "p95": "95%",
    "max": "Largest",
}  # fmt: skip


class DataReport(msgspec.Struct, frozen=True, kw_only=True):
    """The part of data_report.json that is shown."""

    dataset: str
    source: str
    revision: str | None = None
    samples: int
    images: int
    splits: dict[str, dict[str, int]] = {}
    width_px: dict[str, float] = {}
    height_px: dict[str, float] = {}
    megapixels: dict[str, float] = {}
    kilobytes: dict[str, float] = {}
    caption_words: dict[str, float] = {}
    modes: dict[str, int] = {}
    formats: dict[str, int] = {}
    converted: dict[str, int] = {}
    changed_since_fetch: list[str] = []
    rows_left_out: int = 0
    left_out: list[LeftOut] = []


def rows(study: StudyResults) -> list[Any]:
    """What the data are, how large they are, and the files left out."""
    report = study.data_report(DataReport)
    if report is None:
        return []
    kind = f" ({report.source})" if report.source != report.dataset else ""
    revision = f"revision {report.revision}" if report.revision else ""
    splits = (
        f"{name}: {text.counted(count['rows'], 'row')}, {text.counted(count['images'], 'image')}"
        for name, count in report.splits.items()
    )
    facts = {
        "Source": Field(report.dataset + kind, [revision]),
        "Samples": f"{report.samples:,} with {text.counted(report.images, 'image')}",
        "Splits": ", ".join(splits),
        "Colour modes as found": _counts(report.modes),
        "Formats as found": _counts(report.formats),
        "Converted": _counts(report.converted),
        "Changed since they were fetched": text.listed(report.changed_since_fetch),
        "Left out": f"{text.counted(len(report.left_out), 'file')}, "
        f"{text.counted(report.rows_left_out, 'row')}",
    }
    found: list[Any] = [Wide(name, words) for name, words in facts.items() if words]
    found += [
        Wide(one.path, f"{one.reason}: {text.counted(one.rows, 'row')}")
        for one in report.left_out[:LISTED]
    ]
    if len(report.left_out) > LISTED:
        found.append(Wide(f"{len(report.left_out) - LISTED:,} more", "in data_report.json"))
    sizes = {name: getattr(report, field) for field, name in _MEASURES.items()}
    return [*found, *((name, values) for name, values in sizes.items() if values)]


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{name}: {count:,}" for name, count in counts.items())


def _columns(_: StudyResults) -> list[Column]:
    quantiles = (
        Column(head, lambda row, mark=mark: row[1].get(mark), text.number)
        for mark, head in _MARKS.items()
    )
    return [Column("Property", lambda row: row[0]), *quantiles]


TABLES = (Table("data", "The data", "runs", 80, rows, _columns),)
