"""The training data: counts, sizes, and the files left out with the reason."""

from collections.abc import Mapping
from operator import itemgetter
from typing import Any

from feedrate.report import text
from feedrate.report.study import StudyResults
from feedrate.report.table import Column, Table

LISTED = 10
"""Left-out files that the table names."""
SIZES = {
    "width_px": "Width (px)",
    "height_px": "Height (px)",
    "megapixels": "Area (megapixels)",
    "kilobytes": "File size (kB)",
    "caption_words": "Words in a caption",
}


def rows(study: StudyResults) -> list[tuple[str, str]]:
    """What the data are, how large they are, and the files left out."""
    report = study.data_report(dict[str, Any])
    if report is None:
        return []
    splits = (
        f"{name}: {text.counted(count['rows'], 'row')}, {text.counted(count['images'], 'image')}"
        for name, count in report.get("splits", {}).items()
    )
    left_out = report.get("left_out", [])
    facts = {
        "Source": f"{report['dataset']} ({report['source']}, {report.get('revision') or 'local'})",
        "Splits": "; ".join(splits),
        "Colour modes as found": _counts(report.get("modes", {})),
        "Formats as found": _counts(report.get("formats", {})),
        "Converted": _counts(report.get("converted", {})),
        "Changed since they were fetched": text.listed(report.get("changed_since_fetch", [])),
        **{name: _size(report.get(key, {})) for key, name in SIZES.items()},
        "Left out": _left_out(report),
        **{entry["path"]: entry["reason"] for entry in left_out[:LISTED]},
        "More": "in data_report.json" if len(left_out) > LISTED else "",
    }
    return [(name, words) for name, words in facts.items() if words]


def _left_out(report: Mapping[str, Any]) -> str:
    if not report.get("rows_left_out_by_reason"):
        return "0 rows"
    return "; ".join(
        f"{report[f'{noun}s_left_out']:,} of {text.counted(report[f'{noun}s_read'], noun)}"
        for noun in ("image", "row")
    )


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name}: {count:,}" for name, count in counts.items())


def _size(sizes: Mapping[str, float]) -> str:
    if not sizes:
        return ""
    low, middle, high = (text.number(sizes[name]) for name in ("min", "median", "max"))
    return f"{middle} in the median ({low} to {high})"


def _columns(_: StudyResults) -> list[Column]:
    return [Column("Property", itemgetter(0)), Column("Value", itemgetter(1))]


TABLES = (Table("data", "The data", "runs", 80, rows, _columns, align="texts"),)
