"""The image files that a user's rows name: each looked at once, none outside the folder."""

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
    """Files under one folder, by the names that rows give them."""

    def __init__(self, root: Path) -> None:
        """`root` must be resolved."""
        self.root = root
        self._seen: dict[str, RawFile | str] = {}
        self._lost: dict[str, int] = {}

    def find(self, named: str) -> str | None:
        """The path under the root of a file to use, or None where it is lost (and counted)."""
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
        """The files that could not be used, with the rows lost by each."""
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
            raise Unusable(_reason(error)) from None
        except (ValueError, RuntimeError):  # a NUL in the name; a loop of links before Python 3.13
            raise Unusable("not a path of a file") from None

    def _inside(self, named: str) -> Path:
        """The path of a name, which must not lead outside, be it by dots, a root or a link."""
        path = Path(os.path.normpath(self.root / named))
        resolved = path.resolve()
        if not resolved.is_relative_to(self.root):
            raise Unusable("outside the folder")
        return path if path.is_relative_to(self.root) else resolved


def _reason(error: OSError) -> str:
    if error.errno in (errno.ENOENT, errno.ENOTDIR):
        return "missing file"
    return (error.strerror or str(error)).lower()


# Images that stand in a table's cells, written as files.


class EmbeddedImages:
    """Encoded images as files named by their content, so that one picture is one file."""

    def __init__(self, raw: Path) -> None:
        self._raw = raw
        self._files: dict[str, RawFile] = {}
        (raw / "images").mkdir()

    def write(self, image: dict[str, Any] | None, beside: ListedFiles) -> str | None:
        """Write an image, {"bytes", "path"}, if it is new; its path under raw/, or None where it
        cannot be used. A file that is named in place of bytes must be one of `beside`."""
        data = _content(image or {}, beside)
        if data is None:
            return None
        sha256 = hashlib.sha256(data).hexdigest()
        if sha256 not in self._files:
            path = f"images/{sha256[:16]}{_suffix((image or {}).get('path') or '')}"
            (self._raw / path).write_bytes(data)
            self._files[sha256] = RawFile(path=path, size=len(data), sha256=sha256)
        return self._files[sha256].path

    def written(self) -> list[RawFile]:
        """All files, by path."""
        return sorted(self._files.values(), key=lambda file: file.path)


def _content(image: dict[str, Any], beside: ListedFiles) -> bytes | None:
    """The encoded bytes, from the table or from the file that it names."""
    data: bytes | None = image.get("bytes")
    if data is None and image.get("path") and (found := beside.find(image["path"])):
        data = (beside.root / found).read_bytes()
    return data if data is not None and len(data) <= MAX_FILE_BYTES else None


def _suffix(path: str) -> str:
    """The ending of the file's first name, where it is a plain one."""
    suffix = PurePosixPath(path).suffix.lower()
    return suffix if suffix[1:].isalnum() and len(suffix) <= 6 and suffix.isascii() else ""
