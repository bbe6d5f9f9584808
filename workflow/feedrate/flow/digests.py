"""Digests of source code and of files, fast enough to take at every plan."""

import ast
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from feedrate.core.files import digest_text, digest_value, write_text

PACKAGE = Path(__file__).resolve().parent.parent
NAME = PACKAGE.name


DEVICES = ("devices/*.py", "devices/kinds/*.py", "devices/launchers/*.py")
DECODERS = ("loading/decoders/*.py",)
MODELS = ("models/*.py", "models/builders/*.py")
"""The code of all device kinds, launchers, decoders and models: a job imports its own by name."""


class Code(NamedTuple):
    """The code behind a kind of job: the programs it starts (files or globs in the package) and all
    that these import.

    `rooms`: only modules in these parts of the package count; empty: all.
    """

    programs: tuple[str, ...]
    rooms: tuple[str, ...] = ()


CODE = {
    # The measured work itself. What plans, starts or watches a job is not part of it, and what a
    # job is told stands in its spec: neither is a reason to train again.
    "measured": Code(
        # The job, adapters and builders are imported by name: all of them count.
        ("jobs/worker.py", "jobs/train.py", *DEVICES, *DECODERS, *MODELS),
        ("jobs", "devices", "models", "loading"),
    ),
    "inferred": Code(
        ("jobs/worker.py", "jobs/infer.py", *DEVICES, *DECODERS, *MODELS),
        ("jobs", "devices", "models", "loading"),
    ),
    "fetched": Code(("data/fetch.py", "data/sources/*.py"), ("data",)),
    "weights": Code(("data/hub.py",), ("data",)),
    "winoground": Code(("data/winoground.py",), ("data",)),
    "prepared": Code(("data/prepare.py",), ("data",)),
    "stored": Code(("jobs/store.py", *MODELS), ("jobs", "models", "loading", "data")),
    "scored": Code(
        ("jobs/score.py", "jobs/worker.py", "jobs/score_model.py", *DEVICES, *DECODERS, *MODELS),
        ("jobs", "devices", "models", "loading"),
    ),
    "tuned": Code(
        ("cli/tune.py", "jobs/drain.py", "jobs/train.py", *DEVICES, *DECODERS, *MODELS),
        ("cli", "jobs", "devices", "models", "loading"),
    ),
    "predicted": Code(("cli/advice.py",)),
    "qualities": Code(("results/collect.py",)),
    "parsed": Code(("results/assemble.py", "logs/formats/*.py")),
    "collected": Code(("results/collect.py",)),
    "claimed": Code(("results/claims.py",)),
    "fitted": Code(("results/loader_model.py",)),
    "merged": Code(("results/tables.py",)),
    # Of a table or figure; the file of its kind is added, so that an edit reruns that kind alone.
    "page": Code(("report/rows.py",)),
    "card": Code(("report/card.py",)),
    "overview": Code(("report/overview.py",)),
}


class DigestCache:
    """Remembers what was computed from a file by its path, size and time: nothing is read twice."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fresh = False
        try:
            self._known: dict[str, list[Any]] = json.loads(path.read_text())
        except (OSError, ValueError):
            self._known = {}

    def digest(self, path: Path, compute: Callable[[Path], Any]) -> Any:
        """`compute(path)`, a JSON value; computed only where the size or time has changed."""
        stat = path.stat()
        state = [stat.st_mtime_ns, stat.st_size]
        known = self._known.get(str(path))
        if known and known[:2] == state:
            return known[2]
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


def source_digest(cache: DigestCache, code: Code) -> str:
    """Digest of the programs of `code` and of all modules of the package that they import.

    Comments, docstrings and layout do not count: a cosmetic edit changes no digest.
    """
    digests: dict[str, str] = {}
    waiting = [file for program in code.programs for file in sorted(PACKAGE.glob(program))]
    seen = set(waiting)
    while waiting:
        file = waiting.pop()
        value, imports = cache.digest(file, _digest_module)
        name = str(file.relative_to(PACKAGE))
        if not code.rooms or name.startswith(tuple(f"{room}/" for room in code.rooms)):
            digests[name] = value
        found = {path for module in imports for path in _files_of(module)} - seen
        seen |= found
        waiting += found
    return digest_value(digests)


def digest_code(source: str) -> str:
    """Digest of Python code's syntax tree without docstrings."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            node.body = [statement for statement in node.body if not _is_text(statement)]
    return digest_text(ast.dump(tree))


def imported_modules(source: str) -> list[str]:
    """Names of this package that the code imports, anywhere in it: modules, or names in modules."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module)
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
    return sorted(name for name in found if name.split(".")[0] == NAME)


def _digest_module(path: Path) -> list[Any]:
    source = path.read_text(encoding="utf-8")
    return [digest_code(source), imported_modules(source)]


def _files_of(module: str) -> Iterator[Path]:
    """The file of a module, or the packages' `__init__` on the way to it; a name is no file."""
    path = PACKAGE.joinpath(*module.split(".")[1:])
    for file in (path.with_suffix(".py"), path / "__init__.py"):
        if file.is_file():
            yield file


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(getattr(node.value, "value", None), str)
