"""Fetch a dataset: its source provides rows and image files, which are listed with checksums.

Writes raw/rows.parquet, raw/images/ (images of a folder source stay where they are) and, last,
raw/index.json. The folder raw/ is replaced as a whole or not at all.
"""

import hashlib
import math
import os
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from feedrate.config.workflow import Dataset
from feedrate.core import plugins
from feedrate.core.files import digest_file, replaced_folder, write_json
from feedrate.data.manifest import (
    MAX_FILE_BYTES,
    ROWS,
    DataError,
    Fetched,
    LeftOut,
    RawFile,
    RawIndex,
    Unusable,
    check_regular,
)
from feedrate.data.tables import make_table, plain_text, write_table

SOURCES = "feedrate.data.sources"
_SHOWN = 3


def fetch_dataset(name: str, settings: Dataset, out: Path) -> None:
    """Fetch a dataset; `out` is raw/index.json. Raises ConfigError or DataError."""
    source = str(settings.__struct_config__.tag)
    with replaced_folder(out.parent) as raw:
        fetched: Fetched = plugins.load(SOURCES, source).fetch(name, settings, raw)
        rows: list[dict[str, Any]] = []
        left_out = list(fetched.left_out)
        for row in fetched.rows:
            if caption := plain_text(row["caption"]).strip():
                rows.append(row | {"caption": caption})
            else:
                left_out.append(LeftOut(path=row["origin"], reason="no caption"))
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
            files=[file for file in fetched.files if file.path in used],
            left_out=left_out,
        )
        write_json(raw / out.name, msgspec.to_builtins(index))
    lost = sum(entry.rows for entry in left_out)
    print(f"fetched {name}: {len(index.files)} images; {lost} rows left out")


def best_ranked(rows: Sequence[dict[str, Any]], limit: int) -> list[dict[str, Any]]:
    """At most `limit` rows per image, in their order: those with the smallest ranks."""
    kept, count = set[int](), Counter[str]()
    for position in sorted(range(len(rows)), key=lambda p: _rank(rows[p])):
        count[rows[position]["image"]] += 1
        if count[rows[position]["image"]] <= limit:
            kept.add(position)
    return [row for position, row in enumerate(rows) if position in kept]


def _rank(row: dict[str, Any]) -> float:
    with suppress(TypeError, ValueError):
        rank = float(row.get("rank", 0))
        return math.inf if math.isnan(rank) else rank
    return math.inf


class ListedFiles:
    """The image files under one folder that rows name. Each is examined once."""

    def __init__(self, root: Path) -> None:
        """`root` must be resolved."""
        self.root = root
        self._seen: dict[str, RawFile | str] = {}
        self._rows = Counter[str]()

    def find(self, named: str) -> str | None:
        """The path under the root of a usable file; None for an unusable one."""
        self._rows[named] += 1
        if named not in self._seen:
            try:
                self._seen[named] = self._examine(named)
            except Unusable as reason:
                self._seen[named] = str(reason)
        seen = self._seen[named]
        return seen.path if isinstance(seen, RawFile) else None

    def lost(self) -> list[LeftOut]:
        """The unusable files, with the number of rows lost by each."""
        reasons = {name: seen for name, seen in self._seen.items() if isinstance(seen, str)}
        return [LeftOut(path=n, reason=why, rows=self._rows[n]) for n, why in reasons.items()]

    def found(self) -> list[RawFile]:
        """The usable files, each once, sorted by path."""
        files = {seen.path: seen for seen in self._seen.values() if isinstance(seen, RawFile)}
        return [files[path] for path in sorted(files)]

    def _examine(self, named: str) -> RawFile:
        """The file's size and digest, if it is a regular file under the root. Raises Unusable."""
        if not named.strip():
            raise Unusable("no image is named")
        try:
            path = Path(os.path.normpath(self.root / named))
            resolved = path.resolve()
            if not resolved.is_relative_to(self.root):  # by dots, an absolute path or a link
                raise Unusable("outside the folder")
            path = path if path.is_relative_to(self.root) else resolved
            check_regular(path)
            relative = path.relative_to(self.root).as_posix()
            return RawFile(path=relative, sha256=digest_file(path))
        except (FileNotFoundError, NotADirectoryError):
            raise Unusable("missing file") from None
        except OSError as error:
            raise Unusable((error.strerror or str(error)).lower()) from None
        except (ValueError, RuntimeError):  # a NUL in the name; a loop of links before Python 3.13
            raise Unusable("not a path of a file") from None


class EmbeddedImages:
    """Images in the cells of tables, written to files that are named by their content."""

    def __init__(self, raw: Path) -> None:
        self._raw = raw
        self._files: dict[str, RawFile] = {}
        (raw / "images").mkdir()

    def write(self, image: Any, listed: ListedFiles | None = None) -> str | None:
        """Write an image, {"bytes", "path"}, if it is new; return its path under raw/, None for one
        that cannot be used. Without bytes, it is read from the file that it names in `listed`."""
        cell = image if isinstance(image, dict) else {}
        data: bytes | None = cell.get("bytes")
        name: str = cell.get("path") or ""
        if data is None and name and listed and (path := listed.find(name)):
            data = (listed.root / path).read_bytes()
        if data is None or len(data) > MAX_FILE_BYTES:
            return None
        sha256 = hashlib.sha256(data).hexdigest()
        if sha256 not in self._files:
            path = f"images/{sha256[:16]}"
            (self._raw / path).write_bytes(data)
            self._files[sha256] = RawFile(path=path, sha256=sha256)
        return self._files[sha256].path

    def written(self) -> list[RawFile]:
        """All files, sorted by path."""
        return sorted(self._files.values(), key=lambda file: file.path)
