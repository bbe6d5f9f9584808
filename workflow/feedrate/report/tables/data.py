"""The training data: counts, sizes, and the files left out with the reason."""

from functools import partial

import msgspec

from feedrate.data.manifest import LeftOut
from feedrate.report import text
from feedrate.report.context import PageSettings
from feedrate.report.rows import Inputs
from feedrate.report.table import Column, Field, Row, Shown, Table, listed

KINDS = {"data": 240}

LISTED = 50
"""Left-out files that the table names; the last row refers to data_report.json for the others."""
_MEASURES = {
    "width_px": "Width (px)",
    "height_px": "Height (px)",
    "megapixels": "Area (megapixels)",
    "kilobytes": "File size (kB)",
    "caption_words": "Words in a caption",
}
_MARKS = {
    "min": "smallest", "p5": "5%", "median": "median", "mean": "mean", "p95": "95%",
    "max": "largest",
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


def data(settings: PageSettings, inputs: Inputs) -> list[Table | str]:  # noqa: ARG001 (of all studies)
    """Counts, sizes and the list of left-out files."""
    report = inputs.data_report(DataReport)
    kind = f" ({report.source})" if report.source != report.dataset else ""
    revision = f"revision {report.revision}" if report.revision else ""
    splits = (
        f"{name}: {text.counted(count['rows'], 'row')}, {text.counted(count['images'], 'image')}"
        for name, count in report.splits.items()
    )
    facts: dict[str, Shown] = {
        "Source": Field(report.dataset + kind, [revision]),
        "Samples": f"{report.samples:,} with {text.counted(report.images, 'image')}",
        "Splits": ", ".join(splits),
        "Colour modes as found": _counts(report.modes),
        "Formats as found": _counts(report.formats),
        "Converted": _counts(report.converted) or "nothing",
    }
    if report.changed_since_fetch or report.source == "hub":
        changed = text.listed(report.changed_since_fetch) or "none"
        facts["Changed since they were fetched"] = changed
    sizes = [
        Row(name, values) for field, name in _MEASURES.items() if (values := getattr(report, field))
    ]
    columns = [
        Column(name, partial(_quantile, mark), partial(text.number, digits=3))
        for mark, name in _MARKS.items()
    ]
    return [
        Table("Property", listed("Value"), [Row(k, wide=v) for k, v in facts.items()], "texts"),
        Table("Property", columns, sizes),
        *_left_out(report),
    ]


def _quantile(mark: str, values: dict[str, float]) -> float | None:
    return values.get(mark)


def _left_out(report: DataReport) -> list[Table | str]:
    if not report.left_out:
        return ["Nothing was left out."]
    rows: list[Row | str] = [Row(entry.path, entry) for entry in report.left_out[:LISTED]]
    if (more := len(report.left_out) - LISTED) > 0:
        rows.append(f"and {more:,} more, in data_report.json")
    lost = text.counted(report.rows_left_out, "row")
    columns = [Column("Reason", "reason"), Column("Rows lost", "rows", text.integer)]
    return [
        f"Left out: {text.counted(len(report.left_out), 'file')}, {lost}.",
        Table("File", columns, rows, "texts"),
    ]


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{name}: {count:,}" for name, count in counts.items())
