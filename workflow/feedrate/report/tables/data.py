"""The training data: counts, sizes, and the files left out with the reason."""

import msgspec

from feedrate.data.manifest import LeftOut
from feedrate.report import text
from feedrate.report.context import PageSettings
from feedrate.report.markup import Markup, el, group_row, join, row, small, table, wide_row
from feedrate.report.rows import Inputs

ORDER = 240

LISTED = 50
"""Left-out files that the table names; the last row refers to data_report.json for the others."""
_MEASURES = {
    "width_px": "Width (px)",
    "height_px": "Height (px)",
    "megapixels": "Area (megapixels)",
    "kilobytes": "File size (kB)",
    "caption_words": "Words in a caption",
}
_MARKS = ("min", "p5", "median", "mean", "p95", "max")


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


def render(settings: PageSettings, inputs: Inputs) -> Markup:  # noqa: ARG001 (data of all studies)
    """Counts, sizes and the list of left-out files."""
    report = inputs.data_report(DataReport)
    revision = f"revision {report.revision}" if report.revision else ""
    kind = f" ({report.source})" * (report.source != report.dataset)
    changed = text.listed(report.changed_since_fetch) or "none" * (report.source == "hub")
    splits = (
        f"{name}: {text.counted(count['rows'], 'row')}, {text.counted(count['images'], 'image')}"
        for name, count in report.splits.items()
    )
    facts = [
        wide_row("Source", join(report.dataset, kind, small(revision)), 2),
        wide_row("Samples", f"{report.samples:,} with {text.counted(report.images, 'image')}", 2),
        wide_row("Splits", ", ".join(splits), 2),
        wide_row("Colour modes as found", _counts(report.modes), 2),
        wide_row("Formats as found", _counts(report.formats), 2),
        wide_row("Converted", _counts(report.converted) or "nothing", 2),
    ]
    facts += [wide_row("Changed since they were fetched", changed, 2)] * bool(changed)
    sizes = [
        row(name, *(text.number(values.get(mark), 3) for mark in _MARKS))
        for field, name in _MEASURES.items()
        if (values := getattr(report, field))
    ]
    heads = ["Property", "smallest", "5%", "median", "mean", "95%", "largest"]
    return join(
        table(["Property", "Value"], facts, "texts"), table(heads, sizes), _left_out(report)
    )


def _left_out(report: DataReport) -> Markup:
    if not report.left_out:
        return el("p", "Nothing was left out.")
    lines = [row(entry.path, entry.reason, f"{entry.rows:,}") for entry in report.left_out]
    more = len(lines) - LISTED
    rest = [group_row(f"and {more:,} more, in data_report.json", 3)] if more > 0 else []
    lost = f"{text.counted(len(lines), 'file')}, {text.counted(report.rows_left_out, 'row')}"
    return join(
        el("p", f"Left out: {lost}."),
        table(["File", "Reason", "Rows lost"], [*lines[:LISTED], *rest], "texts"),
    )


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{name}: {count:,}" for name, count in counts.items())
