"""Image files that a user's or the hub's rows name or contain.

Each file is examined once and must lie inside its dataset's folder. Images in a table's cells
become files named by their content.
"""

import errno
import hashlib
import os
import stat
from pathlib import Path, PurePosixPath
from typing import Any

from feedrate.core.files import digest_file
from feedrate.data.manifest import MAX_FILE_BYTES, LeftOut, RawFile


class Unusable(Exception):
    """A row or a file that is left out; the message is the reason."""


class ListedFiles:
    """The files under one folder that rows name."""

    def __init__(self, root: Path) -> None:
        """`root` must be resolved."""
        self.root = root
        self._seen: dict[str, RawFile | str] = {}
        self._lost: dict[str, int] = {}

    def find(self, named: str) -> str | None:
        """The path under the root of a usable file; None for an unusable one, which is counted."""
        if named not in self._seen:
            try:
                self._seen[named] = self._examine(named)
            except Unusable as reason:
                self._seen[named] = str(reason)
        seen = self._seen[named]
        if isinstance(seen, RawFile):
            return seen.path
        self._lost[named] = self._lost.get(named, 0) + 1
        return None

    def lost(self) -> list[LeftOut]:
        """The files that could not be used, with the number of rows that each costs."""
        return [
            LeftOut(path=named, reason=str(self._seen[named]), rows=rows)
            for named, rows in self._lost.items()
        ]

    def found(self) -> list[RawFile]:
        """The files to use, each once, by path."""
        files = {seen.path: seen for seen in self._seen.values() if isinstance(seen, RawFile)}
        return [files[path] for path in sorted(files)]

    def _examine(self, named: str) -> RawFile:
        """A file's size and digest. Raises Unusable; only a regular file is opened."""
        if not named.strip():
            raise Unusable("no image is named")
        try:
            path = self._inside(named)
            status = path.stat()
            if not stat.S_ISREG(status.st_mode):
                raise Unusable("not a regular file")
            if status.st_size > MAX_FILE_BYTES:
                raise Unusable(f"larger than {MAX_FILE_BYTES // 2**20} MiB")
            relative = path.relative_to(self.root).as_posix()
            return RawFile(path=relative, size=status.st_size, sha256=digest_file(path))
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ENOTDIR):
                raise Unusable("missing file") from None
            raise Unusable((error.strerror or str(error)).lower()) from None
        except (ValueError, RuntimeError):  # a NUL in the name; a loop of links before Python 3.13
            raise Unusable("not a path of a file") from None

    def _inside(self, named: str) -> Path:
        """The path of a name. Dots, an absolute path or a link must not lead outside the root."""
        path = Path(os.path.normpath(self.root / named))
        resolved = path.resolve()
        if not resolved.is_relative_to(self.root):
            raise Unusable("outside the folder")
        return path if path.is_relative_to(self.root) else resolved


class EmbeddedImages:
    """Encoded images as files named by their content, so that equal images share one file."""

    def __init__(self, raw: Path) -> None:
        self._raw = raw
        self._files: dict[str, RawFile] = {}
        (raw / "images").mkdir()

    def write(self, image: dict[str, Any] | None, listed: ListedFiles) -> str | None:
        """Write an image, {"bytes", "path"}, if it is new; return its path under raw/.

        An image without bytes is read from the file that it names, which must be one of `listed`.
        None for an image that cannot be used.
        """
        image = image or {}
        data: bytes | None = image.get("bytes")
        name: str = image.get("path") or ""
        if data is None and name and (found := listed.find(name)):
            data = (listed.root / found).read_bytes()
        if data is None or len(data) > MAX_FILE_BYTES:
            return None
        sha256 = hashlib.sha256(data).hexdigest()
        if sha256 not in self._files:
            suffix = PurePosixPath(name).suffix.lower()
            plain = suffix[1:].isalnum() and suffix.isascii() and len(suffix) <= 6
            path = f"images/{sha256[:16]}{suffix if plain else ''}"
            (self._raw / path).write_bytes(data)
            self._files[sha256] = RawFile(path=path, size=len(data), sha256=sha256)
        return self._files[sha256].path

    def written(self) -> list[RawFile]:
        """All files, by path."""
        return sorted(self._files.values(), key=lambda file: file.path)
