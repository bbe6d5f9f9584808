"""Fetch a dataset: its source provides rows and images, which are listed with checksums.

Writes raw/rows.parquet, raw/images/ (a folder source's images stay where they are) and, last,
raw/index.json. The folder raw/ is replaced as a whole or not at all.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from feedrate.config.workflow import Dataset
from feedrate.core import plugins
from feedrate.core.files import digest_file, replaced_folder, write_json
from feedrate.data.manifest import ROWS, DataError, Fetched, LeftOut, RawFile, RawIndex
from feedrate.data.rows import make_table, write_table
from feedrate.data.tables import plain_text

SOURCES = "feedrate.data.sources"
_NO_CAPTION = "no caption"
_SHOWN = 3


def fetch_dataset(name: str, settings: Dataset, out: Path) -> None:
    """Fetch the images and rows of the dataset `name` of config.yaml, with a checksum for each
    image. `out` is raw/index.json."""
    index = fetch(name, settings, out)
    lost = sum(entry.rows for entry in index.left_out)
    print(f"fetched {name}: {len(index.files)} images; {lost} rows left out")


def fetch(name: str, settings: Dataset, out: Path) -> RawIndex:
    """Fetch a dataset into the folder of `out`, which is raw/index.json.

    Raises ConfigError or DataError, one sentence, if the dataset cannot be fetched.
    """
    source = str(settings.__struct_config__.tag)
    with replaced_folder(out.parent) as raw:
        fetched: Fetched = plugins.load(SOURCES, source).fetch(name, settings, raw)
        rows, without_caption = _with_captions(fetched.rows)
        limit = getattr(settings, "limit_per_image", None)
        if limit is not None:
            rows = best_ranked(rows, limit)
        left_out = fetched.left_out + without_caption
        if not rows:
            first = "; ".join(f"{entry.path}: {entry.reason}" for entry in left_out[:_SHOWN])
            reasons = f" ({first}, …)" if first else ""
            raise DataError(f"dataset {name}: no row can be used{reasons}")
        table = raw / ROWS
        write_table(table, make_table(rows, ("split", "image", "origin")))
        used = {row["image"] for row in rows}
        index = RawIndex(
            dataset=name,
            source=source,
            root=fetched.root,
            revision=fetched.revision,
            rows=RawFile(path=ROWS, size=table.stat().st_size, sha256=digest_file(table)),
            files=[file for file in fetched.files if file.path in used],
            left_out=left_out,
        )
        write_json(raw / out.name, msgspec.to_builtins(index))
    return index


def _with_captions(
    rows: Sequence[dict[str, Any]],
) -> tuple[list[dict[str, Any]], list[LeftOut]]:
    """The rows with a caption, and the others as left out."""
    kept: list[dict[str, Any]] = []
    left_out: list[LeftOut] = []
    for row in rows:
        caption = plain_text(row["caption"]).strip()
        if caption:
            kept.append(row | {"caption": caption})
        else:
            left_out.append(LeftOut(path=row["origin"], reason=_NO_CAPTION))
    return kept, left_out


def best_ranked(rows: Sequence[dict[str, Any]], limit: int) -> list[dict[str, Any]]:
    """At most `limit` rows of each image, those with the smallest rank; without ranks, the first.

    The order of the rows stays. A rank that is not a number comes last.
    """
    by_image: dict[str, list[int]] = {}
    for position in sorted(range(len(rows)), key=lambda p: _rank(rows[p])):
        by_image.setdefault(rows[position]["image"], []).append(position)
    kept = {position for positions in by_image.values() for position in positions[:limit]}
    return [row for position, row in enumerate(rows) if position in kept]


def _rank(row: dict[str, Any]) -> float:
    try:
        rank = float(row.get("rank", 0))
    except (TypeError, ValueError):
        return float("inf")
    return rank if rank == rank else float("inf")  # NaN has no order
