"""Digests of source code and of folders, fast enough to take at every plan."""

import ast
import json
from collections.abc import Callable, Iterable
from pathlib import Path

from feedrate.files import digest_file, digest_text, digest_value, write_text

PACKAGE = Path(__file__).resolve().parent.parent

MEASURED = ("config/base.py", "config/settings.py", "data/loading", "devices", "models", "train")
"""Modules that define the measured work: a change of their code is a change of every run."""


class DigestCache:
    """Remembers digests by path, size and modification time, so no unchanged file is read."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fresh = False
        try:
            self._known: dict[str, list[object]] = json.loads(path.read_text())
        except (OSError, ValueError):
            self._known = {}

    def digest(self, path: Path, compute: Callable[[Path], str]) -> str:
        """The digest of `path`, computed only where its size or time has changed."""
        stat = path.stat()
        state = [stat.st_mtime_ns, stat.st_size]
        known = self._known.get(str(path))
        if known and known[:2] == state:
            return str(known[2])
        value = compute(path)
        self._known[str(path)] = [*state, value]
        self._fresh = True
        return value

    def save(self) -> None:
        """Keep what was computed for the next plan; a read-only tree is no error."""
        if self._fresh:
            try:
                write_text(self._path, json.dumps(self._known))
            except OSError:
                return
            self._fresh = False


def source_digest(cache: DigestCache, parts: Iterable[str]) -> str:
    """Digest of the code in these files and folders of the package.

    Comments, docstrings and layout do not count: a cosmetic edit changes no digest.
    """
    files = sorted(
        file
        for part in parts
        for file in ([PACKAGE / part] if part.endswith(".py") else (PACKAGE / part).rglob("*.py"))
    )
    return digest_value({str(f.relative_to(PACKAGE)): cache.digest(f, digest_code) for f in files})


def digest_code(path: Path) -> str:
    """Digest of a Python file's syntax tree without docstrings."""
    tree = ast.parse(path.read_text(encoding="utf-8"), filename=str(path))
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            node.body = [s for s in node.body if not _is_text(s)]
    return digest_text(ast.dump(tree))


def folder_digest(cache: DigestCache, folder: Path) -> str:
    """Digest of the names and contents under `folder`; "absent" where there is none."""
    if not folder.is_dir():
        return "absent"
    files = sorted(p for p in folder.rglob("*") if p.is_file() and not p.name.startswith("."))
    return digest_value({str(f.relative_to(folder)): cache.digest(f, digest_file) for f in files})


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(getattr(node.value, "value", None), str)
