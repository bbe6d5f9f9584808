"""Images that stand in a table's cells, written as files."""

import hashlib
from pathlib import Path, PurePosixPath
from typing import Any

from feedrate.data.raw import MAX_FILE_BYTES, RawFile
from feedrate.data.sources.listed import ListedFiles


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
