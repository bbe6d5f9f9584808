"""prepared/data_report.json: what a dataset consists of, what was converted, what left out."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean, median, quantiles
from typing import Any

import msgspec

from feedrate.data.raw import LeftOut, RawIndex
from feedrate.data.splits import count_splits
from feedrate.data.verify import Rejected, Stored

REPORT_SCHEMA = 1


def make_report(
    index: RawIndex,
    rows: Sequence[Mapping[str, Any]],
    samples: Sequence[Mapping[str, Any]],
    verdicts: Mapping[str, Stored | Rejected],
) -> dict[str, Any]:
    """Counts, distributions and lists; free of times, machine names and absolute paths."""
    stored = [verdict for verdict in verdicts.values() if isinstance(verdict, Stored)]
    left_out = [*index.left_out, *rejected_images(rows, verdicts)]
    return {
        "schema": REPORT_SCHEMA,
        "dataset": index.dataset,
        "source": index.source,
        "revision": index.revision,
        "samples": len(samples),
        "splits": msgspec.to_builtins(count_splits(samples)),
        "images": len({image.path for image in stored}),
        "width_px": summary(image.width for image in stored),
        "height_px": summary(image.height for image in stored),
        "megapixels": summary(image.width * image.height / 1e6 for image in stored),
        "kilobytes": summary(image.size / 1e3 for image in stored),
        "caption_words": summary(len(sample["caption"].split()) for sample in samples),
        "modes": _counts(image.mode for image in stored),
        "formats": _counts(image.format for image in stored),
        "converted": _counts(change for image in stored for change in image.changes),
        "changed_since_fetch": sorted(
            path for path, v in verdicts.items() if isinstance(v, Stored) and v.edited
        ),
        "rows_left_out": sum(entry.rows for entry in left_out),
        "left_out": [
            {"path": entry.path, "reason": entry.reason, "rows": entry.rows} for entry in left_out
        ],
    }


def rejected_images(
    rows: Iterable[Mapping[str, Any]], verdicts: Mapping[str, Stored | Rejected]
) -> list[LeftOut]:
    """The images that verification left out, with the rows lost by each."""
    lost = Counter(row["image"] for row in rows)
    return [
        LeftOut(path=path, reason=verdict.reason, rows=lost[path])
        for path, verdict in sorted(verdicts.items())
        if isinstance(verdict, Rejected)
    ]


def summary(values: Iterable[float]) -> dict[str, float]:
    """Smallest, 5%, median, mean, 95% and largest; nothing where there are no values."""
    ordered = sorted(float(value) for value in values)
    if not ordered:
        return {}
    marks = quantiles(ordered, n=20, method="inclusive") if len(ordered) > 1 else ordered * 19
    figures = {
        "min": ordered[0],
        "p5": marks[0],
        "median": median(ordered),
        "mean": fmean(ordered),
        "p95": marks[-1],
        "max": ordered[-1],
    }
    return {name: round(value, 3) for name, value in figures.items()}


def _counts(values: Iterable[str]) -> dict[str, int]:
    return dict(sorted(Counter(values).items()))
