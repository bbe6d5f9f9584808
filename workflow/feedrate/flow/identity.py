"""Identities: digests of all that a run, a dataset or a store is made from. They are parts of the
paths, so another identity is another folder, and nothing has to be invalidated.

A digest of code ignores comments, docstrings and layout. It is fast enough for every plan: an
unchanged file costs one stat.
"""

import ast
import json
import stat
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from feedrate.config.spec import LIBRARIES, RunSpec, library_of
from feedrate.core import plugins
from feedrate.core.files import digest_file, digest_value, write_text
from feedrate.data.manifest import DataError, read_index
from feedrate.loading.decoders import decoder_of

PACKAGE = Path(__file__).resolve().parent.parent
LENGTH = 8  # characters of an identity
MEASURED = ("jobs", "devices", "models", "loading")  # the rooms of the measured work


def identity(*parts: Any) -> str:
    """The identity of what is made from these JSON values."""
    return digest_value(parts)[:LENGTH]


class Code(NamedTuple):
    """The code behind a kind of job: its programs and all modules that these import."""

    programs: tuple[str, ...]
    """Files or globs in the package; files of other distributions' plug-ins with their paths."""
    rooms: tuple[str, ...] = ()  # of the package, only modules in these rooms count; empty: all


def measured_code(spec: RunSpec) -> Code:
    """The measured work of a run, with the plug-ins that it imports by name. Modules that plan,
    start or watch a job do not count, and its settings are in its spec. The reference decoder
    counts: every run compares its pixels with it."""
    loader = spec.settings.loader
    programs = [
        "jobs/worker.py",
        "jobs/infer.py" if spec.task == "inference" else "jobs/train.py",
        "devices/*.py",
        f"devices/kinds/{spec.kind}.py",
        f"devices/launchers/{spec.launcher}.py",
        f"models/builders/{spec.settings.model.name}.py",
    ]
    decoders = {decoder_of("reference"), decoder_of(loader.decode)}
    decoders.add(decoder_of(loader.decode, spec.kind))
    programs += [f"loading/decoders/{name}.py" for name in sorted(filter(None, decoders))]
    library = library_of(loader)
    if library:
        programs.append(plugin_file(LIBRARIES, library))
    return Code(tuple(programs), MEASURED)


def plugin_file(package: str, name: str) -> str:
    """The file of a plug-in as programs name it: one of another distribution with its path."""
    if plugins.home(package, name) != package:
        return str(plugins.file(package, name))
    return f"{package.partition('.')[2].replace('.', '/')}/{name}.py"


class DigestCache:
    """Values computed from files, kept from plan to plan: an unchanged file costs one stat."""

    def __init__(self, path: Path) -> None:
        self._path, self._is_changed = path, False
        self._code: dict[Code, str] = {}
        self._entries: dict[str, list[Any]] = {}
        with suppress(OSError, ValueError):
            self._entries = json.loads(path.read_text())

    def of_file(self, path: Path, compute: Callable[[Path], Any] = digest_file) -> Any:
        """`compute(path)`, a JSON value; computed only if the file's size or time has changed."""
        status = path.stat()
        state = [status.st_mtime_ns, status.st_size]
        entry = self._entries.get(str(path))
        if entry and entry[:2] == state:
            return entry[2]
        value = compute(path)
        self._entries[str(path)] = [*state, value]
        self._is_changed = True
        return value

    def of_code(self, code: Code) -> str:
        """The digest of `code` with all modules that it imports."""
        if code not in self._code:
            digests = {
                name: self.of_file(file, digest_module)[0] for name, file in self._modules(code)
            }
            self._code[code] = digest_value(digests)
        return self._code[code]

    def sources(self, *programs: str) -> list[Path]:
        """The files of programs and of all modules that they import: the inputs of a cheap rule."""
        return [file for _, file in self._modules(Code(programs))]

    def _modules(self, code: Code) -> Iterator[tuple[str, Path]]:
        """Name and file of each module that counts."""
        queue: list[Path] = []
        for program in code.programs:
            is_file = Path(program).is_absolute()
            queue += [Path(program)] if is_file else sorted(PACKAGE.glob(program))
        seen = set(queue)
        files = _package_files(plugins.added())
        names = {file: name for name, file in files.items()}
        while queue:
            file = queue.pop()
            _, imports = self.of_file(file, digest_module)
            if not file.is_relative_to(PACKAGE):
                yield names[file], file
            elif not code.rooms or file.relative_to(PACKAGE).parts[0] in code.rooms:
                yield str(file.relative_to(PACKAGE)), file
            new = {files[name] for name in imports if name in files} - seen
            seen |= new
            queue += new

    def save(self) -> None:
        """Keep the values for the next plan; a read-only folder is no error."""
        if self._is_changed:
            with suppress(OSError):
                write_text(self._path, json.dumps(self._entries))
                self._is_changed = False


def digest_module(path: Path) -> list[Any]:
    """The digest of a module's code without comments, layout and docstrings; and the modules, or
    names in modules, that it imports anywhere."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    imports: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            node.body = [statement for statement in node.body if not _is_text(statement)]
        elif isinstance(node, ast.Import):
            imports.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            imports.add(node.module)
            imports.update(f"{node.module}.{alias.name}" for alias in node.names)
    return [digest_value(ast.unparse(tree)), sorted(imports)]


def _is_text(statement: ast.stmt) -> bool:
    """Whether a statement is a string alone, such as a docstring."""
    value = statement.value if isinstance(statement, ast.Expr) else None
    return isinstance(value, ast.Constant) and isinstance(value.value, str)


def _package_files(others: tuple[str, ...]) -> dict[str, Path]:
    """The files of this package and of those with further plug-ins, by their modules' names."""
    tops = {package.split(".")[0] for package in others} - {PACKAGE.name}
    folders = {PACKAGE.name: PACKAGE} | {n: Path(import_module(n).__path__[0]) for n in tops}
    return {name: file for place in folders.items() for name, file in _files(*place)}


@cache
def _files(top: str, folder: Path) -> list[tuple[str, Path]]:
    """The names of a package's modules, with their files."""
    modules = []
    for file in folder.rglob("*.py"):
        parts = top, *file.relative_to(folder).with_suffix("").parts
        modules.append((".".join(parts).removesuffix(".__init__"), file))
    return modules


# Files besides code that data and runs are made from.


def edited_files(index_path: Path, digests: DigestCache) -> dict[str, str]:
    """The fetched files that have changed since, with their states; none if nothing has been
    fetched yet, and for a folder source, whose files `folder_state` digests."""
    try:
        index = read_index(index_path)
    except (DataError, OSError):
        return {}
    states = {}
    for file in [] if index.root else [index.rows, *index.files]:
        state = file_state(index_path.parent / file.path, digests)
        if state != file.sha256:
            states[file.path] = state
    return states


def folder_state(path: Path, digests: DigestCache) -> str:
    """A digest of the file `path`, or of the names and contents of all files in the folder `path`
    that are not hidden; "absent" if there is neither. Only regular files are opened."""
    if path.is_file():
        return file_state(path, digests)
    if not path.is_dir():
        return "absent"
    return digest_value({str(f.relative_to(path)): file_state(f, digests) for f in _visible(path)})


def _visible(folder: Path) -> Iterator[Path]:
    """The files under a folder, by name; links to folders are not followed, to avoid loops."""
    for entry in sorted(folder.iterdir()):
        if entry.name.startswith("."):
            continue
        if entry.is_dir() and not entry.is_symlink():
            yield from _visible(entry)
        else:
            yield entry


def file_state(path: Path, digests: DigestCache) -> str:
    """The SHA-256 of a regular file; for anything else, or after an error, a word."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            return "special"
        return str(digests.of_file(path))
    except OSError as error:
        return type(error).__name__
