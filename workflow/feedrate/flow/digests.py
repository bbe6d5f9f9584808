"""Digests of a job's code and of the files that it reads, fast enough for every plan: with another
digest it runs again."""

import ast
import json
import stat
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from feedrate.config.settings import Decode
from feedrate.config.spec import LIBRARIES, Kind
from feedrate.core import plugins
from feedrate.core.files import digest_file, digest_value, write_text
from feedrate.data.hub import PATTERNS
from feedrate.data.manifest import DataError, read_index
from feedrate.loading.decoders import decoders

PACKAGE = Path(__file__).resolve().parent.parent
NAME = PACKAGE.name

SHARED = ("devices/*.py",)
"""The code around device kinds and launchers; `plugins_of` adds a run's own."""
MEASURED = ("jobs", "devices", "models", "loading")
"""The rooms of the measured work."""


class Code(NamedTuple):
    """The code behind a kind of job: its programs and all modules that these import."""

    programs: tuple[str, ...]
    """Files or globs in the package; files of other distributions' plug-ins with their paths."""
    rooms: tuple[str, ...] = ()
    """Of the package, only modules in these rooms count; empty: all."""


CODE = {
    # The measured work only. Modules that plan, start or watch a job do not count, and a job's
    # settings are in its spec: neither is a reason to train again.
    "measured": Code(("jobs/worker.py", "jobs/train.py", *SHARED), MEASURED),
    "inferred": Code(("jobs/worker.py", "jobs/infer.py", *SHARED), MEASURED),
    "fetched": Code(("data/fetch.py",), ("data",)),
    "weights": Code(("data/hub.py",), ("data",)),
    "winoground": Code(("data/winoground.py",), ("data",)),
    "prepared": Code(("data/prepare.py",), ("data",)),
    "stored": Code(("jobs/store.py",), ("jobs", "models", "loading", "data")),
    "parsed": Code(("results/assemble.py",)),
    "collected": Code(("results/collect.py",)),
    "claimed": Code(("results/claims.py",)),
    "merged": Code(("results/merge.py",)),
    # For a table or figure, the file of its kind is added: an edit of it reruns only that kind.
    "page": Code(("report/page.py",)),
    "overview": Code(("report/overview.py",)),
}


@cache
def plugins_of(
    kind: Kind, launcher: str, model: str, level: Decode, library: str = ""
) -> tuple[str, ...]:
    """The files of the plug-ins that a run imports by name. The reference decoder is one of them:
    every run compares its pixels with it."""
    names = {*decoders(level), *decoders(level, kind), *decoders("reference")}
    return (
        f"devices/kinds/{kind}.py",
        f"devices/launchers/{launcher}.py",
        builder(model),
        *(f"loading/decoders/{name}.py" for name in sorted(names)),
        *([plugin_file(LIBRARIES, library)] if library else []),
    )


def plugin_file(package: str, name: str) -> str:
    """The file of a plug-in as programs name it: one of another distribution with its path."""
    if plugins.home(package, name) != package:
        return str(plugins.file(package, name))
    return f"{package.partition('.')[2].replace('.', '/')}/{name}.py"


def builder(model: str) -> str:
    """The file of a model's plug-in."""
    return f"models/builders/{model}.py"


class DigestCache:
    """Values computed from files, kept from plan to plan: an unchanged file costs one stat."""

    def __init__(self, path: Path) -> None:
        self._path, self._fresh = path, False
        try:
            self._known: dict[str, list[Any]] = json.loads(path.read_text())
        except (OSError, ValueError):
            self._known = {}

    def digest(self, path: Path, compute: Callable[[Path], Any]) -> Any:
        """`compute(path)`, a JSON value; computed only if the file's size or time has changed."""
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
        """Keep the values for the next plan; a read-only folder is no error."""
        if self._fresh:
            with suppress(OSError):
                write_text(self._path, json.dumps(self._known))
                self._fresh = False


def source_digest(cache: DigestCache, code: Code) -> str:
    """Digest of `code` with all modules it imports, without comments, docstrings and layout."""
    digests: dict[str, str] = {}
    waiting: list[Path] = []
    for program in code.programs:
        of_others = Path(program).is_absolute()
        waiting += [Path(program)] if of_others else sorted(PACKAGE.glob(program))
    seen = set(waiting)
    modules = {name: file for top, root in _roots().items() for name, file in _modules(top, root)}
    names = {file: name for name, file in modules.items()}
    while waiting:
        file = waiting.pop()
        value, imports = cache.digest(file, digest_module)
        if not file.is_relative_to(PACKAGE):
            digests[names[file]] = value
        else:
            name = str(file.relative_to(PACKAGE))
            if not code.rooms or name.startswith(tuple(f"{room}/" for room in code.rooms)):
                digests[name] = value
        found = {modules[name] for name in imports if name in modules} - seen
        seen |= found
        waiting += found
    return digest_value(digests)


def digest_code(tree: ast.Module) -> str:
    """Digest of Python code's syntax tree without docstrings, which are taken out of the tree."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            node.body = [statement for statement in node.body if not _is_text(statement)]
        elif isinstance(node, ast.JoinedStr):  # some releases of Python 3.12 end some with ""
            node.values = [part for part in node.values if getattr(part, "value", None) != ""]
    return digest_value(_plain(tree))


def _plain(node: Any) -> Any:
    """A syntax tree as plain values, which do not depend on Python's version: later versions add
    fields to nodes, which are empty where the code has nothing new."""
    if isinstance(node, list):
        return [_plain(one) for one in node]
    if not isinstance(node, ast.AST):
        return repr(node)
    fields = {name: getattr(node, name, None) for name in node._fields}
    filled = {name: _plain(one) for name, one in fields.items() if one is not None and one != []}
    return [type(node).__name__, filled]


def imported_modules(tree: ast.Module) -> list[str]:
    """Names that the code imports anywhere from this package and from those with further plug-ins:
    modules, or names in modules."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module)
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
    return sorted(name for name in found if name.split(".")[0] in _roots())


def digest_module(path: Path) -> list[Any]:
    """The digest of a module's code, and the names that it imports (`imported_modules`)."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return [digest_code(tree), imported_modules(tree)]


def _roots() -> dict[str, Path]:
    """The folders of this package and of those with further plug-ins, by name."""
    others = {package.split(".")[0] for package in plugins.added()}
    return {NAME: PACKAGE} | {name: Path(import_module(name).__path__[0]) for name in others}


@cache
def _modules(top: str, package: Path) -> list[tuple[str, Path]]:
    """The dotted names of a package's modules, with their files."""
    found = []
    for file in package.rglob("*.py"):
        parts = file.relative_to(package).with_suffix("").parts
        found.append((".".join((top, *parts)).removesuffix(".__init__"), file))
    return found


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(getattr(node.value, "value", None), str)


# Fetched files, and files of the user, that a job reads.

_SHORT = 16
"""Characters of a digest that are used as a param."""


def edited(index_path: Path, cache: DigestCache) -> str:
    """A digest of the fetched files that have changed since; empty if none has, if nothing has been
    fetched yet, and for a folder source, whose files `folder_state` digests."""
    try:
        index = read_index(index_path)
    except (DataError, OSError):
        return ""
    if index.root:
        return ""
    listed = {file.path: file.sha256 for file in [index.rows, *index.files]}
    now = {path: _state(index_path.parent / path, cache) for path in listed}
    different = {path: state for path, state in now.items() if state != listed[path]}
    return digest_value(different)[:_SHORT] if different else ""


def folder_state(path: Path, cache: DigestCache) -> str:
    """A digest of the file `path`, or of the names and contents of all files in the folder `path`
    that are not hidden; "absent" if there is neither. Only regular files are opened."""
    if path.is_file():
        return _state(path, cache)[:_SHORT]
    if not path.is_dir():
        return "absent"
    files = {str(f.relative_to(path)): _state(f, cache) for f in _visible(path)}
    return digest_value(files)[:_SHORT]


def weights_state(folder: Path, cache: DigestCache) -> str:
    """A digest of the names and contents of the files in `folder` that a model is read from;
    "absent" if there are none. Other files, such as a model's card, do not count."""
    files = {file for pattern in PATTERNS for file in folder.glob(pattern)}
    states = {file.name: _state(file, cache) for file in sorted(files)}
    return digest_value(states)[:_SHORT] if states else "absent"


def _visible(folder: Path) -> Iterator[Path]:
    """The files under a folder, by name; links to folders are not followed, to avoid loops."""
    for entry in sorted(folder.iterdir()):
        if entry.name.startswith("."):
            continue
        if entry.is_dir() and not entry.is_symlink():
            yield from _visible(entry)
        else:
            yield entry


def _state(path: Path, cache: DigestCache) -> str:
    """The SHA-256 of a regular file; for anything else, or after an error, a word."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            return "special"
        return cache.digest(path, digest_file)
    except OSError as error:
        return type(error).__name__
