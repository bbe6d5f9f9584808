"""Fetch a dataset: its source provides rows and image files, which are listed with checksums.

Writes raw/rows.parquet, raw/images/ (images of a folder source stay where they are) and, last,
raw/index.json. The folder raw/ is replaced as a whole or not at all.
"""

import hashlib
import math
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from unicodedata import normalize

import msgspec
from msgspec.structs import replace

from feedrate.config.workflow import Dataset
from feedrate.core import plugins
from feedrate.core.files import digest_file, replaced_folder, write_json
from feedrate.data.manifest import (
    ROWS,
    DataError,
    Fetched,
    LeftOut,
    RawFile,
    RawIndex,
    Unusable,
    check_size,
    read_regular,
    reading_file,
)
from feedrate.data.tables import make_table, plain_text, texts, write_table

SOURCES = "feedrate.data.sources"
_SHOWN = 3


def fetch_dataset(name: str, settings: Dataset, out: Path) -> None:
    """Fetch a dataset; `out` is raw/index.json. Raises ConfigError or DataError."""
    source = str(settings.__struct_config__.tag)
    with replaced_folder(out.parent) as raw:
        fetched: Fetched = plugins.load(SOURCES, source).fetch(name, settings, raw)
        rows, left_out = _rows_of_captions(fetched, getattr(settings, "columns", {}))
        images_read = len(fetched.files) + sum(entry.images for entry in left_out)
        rows_left_out = sum(entry.rows for entry in left_out)
        rows_read = len(rows) + rows_left_out
        limit = getattr(settings, "limit_per_image", None)
        if limit is not None:
            rows = best_ranked(rows, limit)
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
            rows=RawFile(path=ROWS, sha256=digest_file(table)),
            images_read=images_read,
            rows_read=rows_read,
            files=[file for file in fetched.files if file.path in used],
            left_out=left_out,
        )
        write_json(raw / out.name, msgspec.to_builtins(index))
    images = len(index.files)
    left_out_text = f"{images_read - images} images, {rows_left_out} rows"
    print(f"fetched {name}: {images} images; left out: {left_out_text}")


def _rows_of_captions(
    fetched: Fetched, columns: Mapping[str, str]
) -> tuple[list[dict[str, Any]], list[LeftOut]]:
    """A row for each caption, and what is left out; `columns`: our column to theirs."""
    rows: list[dict[str, Any]] = []
    count = Counter[LeftOut]()  # rows, by what costs them: an image, or a fault of a row
    for entry in fetched.left_out:
        count[replace(entry, rows=0)] += entry.rows
    for row in fetched.rows:
        try:
            for ours, value in row.items():
                check = texts if ours in ("caption", "caption_choices") else plain_text
                check(value, columns.get(ours, ours))
        except Unusable as reason:
            count[LeftOut(path=row["origin"], reason=str(reason), rows=0)] += 1
            continue
        for caption in texts(row["caption"], "caption") or [""]:
            if caption:
                rows.append(row | {"caption": caption})
            else:
                count[LeftOut(path=row["origin"], reason="no caption", rows=0)] += 1
    return rows, [replace(entry, rows=number) for entry, number in count.items()]


def best_ranked(rows: Sequence[dict[str, Any]], limit: int) -> list[dict[str, Any]]:
    """At most `limit` rows per image, in their order: those with the smallest ranks."""

    def rank(position: int) -> float:
        with suppress(TypeError, ValueError):
            value = float(rows[position].get("rank", 0))
            return math.inf if math.isnan(value) else value
        return math.inf

    best = set[int]()
    count = Counter[str]()
    for position in sorted(range(len(rows)), key=rank):
        image = rows[position]["image"]
        count[image] += 1
        if count[image] <= limit:
            best.add(position)
    return [row for position, row in enumerate(rows) if position in best]


class ListedFiles:
    """The image files under one folder that rows name. Each is examined once."""

    def __init__(self, root: Path) -> None:
        """`root` must be resolved."""
        self.root = root
        self._verdicts: dict[str, RawFile | Unusable] = {}
        self._names: dict[Path, dict[str, str]] = {}

    def find(self, name: str) -> str:
        """The path under the root of the regular file with this path. Raises Unusable."""
        if name not in self._verdicts:
            try:
                with reading_file():
                    self._verdicts[name] = self._examine(name)
            except Unusable as reason:
                self._verdicts[name] = reason
        verdict = self._verdicts[name]
        if isinstance(verdict, Unusable):
            raise verdict
        return verdict.path

    def usable(self) -> list[RawFile]:
        """The usable files, each once, sorted by path."""
        files = {file.path: file for file in self._verdicts.values() if isinstance(file, RawFile)}
        return [files[path] for path in sorted(files)]

    def _examine(self, name: str) -> RawFile:
        """The file's path and digest. Raises OSError or Unusable."""
        path = Path(os.path.normpath(self.root / name))
        if not path.is_relative_to(self.root):
            path = path.resolve()
        if path.is_relative_to(self.root):
            path = self._on_disk(path)
        if not path.resolve().is_relative_to(self.root):  # by dots, an absolute path or a link
            raise Unusable("outside the folder")
        relative = path.relative_to(self.root)
        if is_hidden(relative):
            raise Unusable("hidden file")
        sha256 = hashlib.sha256(read_regular(path)).hexdigest()
        return RawFile(path=relative.as_posix(), sha256=sha256)

    def _on_disk(self, path: Path) -> Path:
        """The path as its folders spell it, in any Unicode form. Raises OSError."""
        if os.path.lexists(path) or path == self.root:
            return path
        folder = self._on_disk(path.parent)
        if folder not in self._names:
            names = {normalize("NFC", file.name): file.name for file in folder.iterdir()}
            self._names[folder] = names
        name = self._names[folder].get(normalize("NFC", path.name))
        if name is None:
            raise FileNotFoundError
        return folder / name


def is_hidden(relative: Path) -> bool:
    """Whether a path has a hidden part, as files of macOS, Jupyter and editors do."""
    return any(part.startswith(".") for part in relative.parts)


class EmbeddedImages:
    """Images in the cells of tables, written to files that are named by their content."""

    def __init__(self, raw: Path) -> None:
        self._raw = raw
        self._files: dict[str, RawFile] = {}
        (raw / "images").mkdir()

    def write(self, image: Any, listed: ListedFiles | None = None) -> str:
        """Write an image, {"bytes", "path"}, if it is new; return its path under raw/. Without
        bytes, it is read from the file of `listed` that it names. Raises Unusable."""
        if not isinstance(image, dict):
            image = {}
        data: bytes | None = image.get("bytes")
        name: str = image.get("path") or ""
        if data is None and "::" in name:
            raise Unusable("file in an archive")
        if data is None and name and listed:
            data = (listed.root / listed.find(name)).read_bytes()
        if data is None:
            raise Unusable("no image")
        check_size(len(data))
        sha256 = hashlib.sha256(data).hexdigest()
        if sha256 not in self._files:
            path = f"images/{sha256[:16]}"
            (self._raw / path).write_bytes(data)
            self._files[sha256] = RawFile(path=path, sha256=sha256)
        return self._files[sha256].path

    def written(self) -> list[RawFile]:
        """All files, sorted by path."""
        return sorted(self._files.values(), key=lambda file: file.path)
