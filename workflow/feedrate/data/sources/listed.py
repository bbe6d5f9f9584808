"""The image files that a user's rows name: each looked at once, none outside the folder."""

import errno
import os
import stat
from pathlib import Path

from feedrate.data.raw import MAX_FILE_BYTES, LeftOut, RawFile
from feedrate.files import digest_file


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
