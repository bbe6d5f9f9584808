"""Fetch a dataset's images and rows.

Writes raw/rows.parquet, raw/images/ (a folder source's images stay where they are) and, last,
raw/index.json. The folder raw/ is replaced as a whole or not at all.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from feedrate.config.workflow import Dataset, Folder, Generated, Hub
from feedrate.core.files import digest_file, replaced_folder
from feedrate.data.manifest import (
    ROWS,
    DataError,
    Fetched,
    LeftOut,
    RawFile,
    RawIndex,
    write_index,
)
from feedrate.data.rows import make_table, write_table
from feedrate.data.tables import plain_text

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

    Raises ConfigError or DataError in one sentence where it cannot be had.
    """
    with replaced_folder(out.parent) as raw:
        fetched = _fetch(name, settings, raw)
        rows, without_caption = _with_captions(fetched.rows)
        if isinstance(settings, Folder) and settings.limit_per_image is not None:
            rows = best_ranked(rows, settings.limit_per_image)
        left_out = fetched.left_out + without_caption
        if not rows:
            raise DataError(_nothing(name, left_out))
        write_table(raw / ROWS, make_table(rows, ("split", "image", "origin")))
        used = {row["image"] for row in rows}
        index = RawIndex(
            dataset=name,
            source=str(settings.__struct_config__.tag),
            root=fetched.root,
            revision=fetched.revision,
            rows=_describe(raw, ROWS),
            files=[file for file in fetched.files if file.path in used],
            left_out=left_out,
        )
        write_index(raw / out.name, index)
    return index


def best_ranked(rows: Sequence[dict[str, Any]], limit: int) -> list[dict[str, Any]]:
    """At most `limit` rows of each image, those of the best (smallest) rank, else the first.

    The order of the rows stays; a rank that is no number comes last.
    """
    by_image: dict[str, list[int]] = {}
    for position in sorted(range(len(rows)), key=lambda p: _rank(rows[p])):
        by_image.setdefault(rows[position]["image"], []).append(position)
    kept = {position for positions in by_image.values() for position in positions[:limit]}
    return [row for position, row in enumerate(rows) if position in kept]


def _fetch(name: str, settings: Dataset, raw: Path) -> Fetched:
    """What the dataset's source gives; the sources' imports are heavy, so only one is loaded."""
    match settings:
        case Generated():
            from feedrate.data.sources.generated import fetch_generated

            return fetch_generated(settings, raw, workers=len(os.sched_getaffinity(0)))
        case Folder():
            from feedrate.data.sources.folder import fetch_folder

            return fetch_folder(name, settings)
        case Hub():
            from feedrate.data.sources.hub import fetch_hub

            return fetch_hub(name, settings, raw)


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


def _rank(row: dict[str, Any]) -> float:
    try:
        rank = float(row.get("rank", 0))
    except (TypeError, ValueError):
        return float("inf")
    return rank if rank == rank else float("inf")  # NaN has no order


def _describe(folder: Path, name: str) -> RawFile:
    path = folder / name
    return RawFile(path=name, size=path.stat().st_size, sha256=digest_file(path))


def _nothing(name: str, left_out: Sequence[LeftOut]) -> str:
    first = "; ".join(f"{entry.path}: {entry.reason}" for entry in left_out[:_SHOWN])
    return f"dataset {name}: no row can be used{f' ({first}, …)' if first else ''}"
