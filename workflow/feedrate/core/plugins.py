"""Plug-ins: one file each in the package of their kind (`report/figures/`, `models/builders/`, …).

Their constants in capitals are read without importing the file, if they are Python literals: so
planning knows the sizes of a model without torch. Other distributions add plug-ins by entry points
of the group `GROUP`: the name is one of these packages, and the value is a package with files of
the same kind, whose `__init__` must import nothing.
"""

import ast
import importlib.util
from contextlib import suppress
from functools import cache
from importlib.metadata import EntryPoints, entry_points
from pathlib import Path
from types import ModuleType
from typing import Any

GROUP = "feedrate.plugins"


def names(package: str) -> tuple[str, ...]:
    """The plug-ins of a package such as `feedrate.report.figures`, in alphabetical order."""
    return tuple(sorted(_files(package)))


def load(package: str, name: str) -> ModuleType:
    """Import a plug-in. Raises KeyError as `home`."""
    return importlib.import_module(f"{home(package, name)}.{name}")


def home(package: str, name: str) -> str:
    """The package of a plug-in: `package` or another distribution's. Raises KeyError."""
    if name not in names(package):
        raise KeyError(f"no {name!r} in {package}; known: {', '.join(names(package))}")
    return _files(package)[name][0]


def file(package: str, name: str) -> Path:
    """The file of a plug-in."""
    return _files(package)[name][1]


def declared(package: str, constant: str) -> dict[str, Any]:
    """The literal value of a constant by the name of each plug-in that assigns it."""
    constants = {
        name: _literals(path, path.stat().st_mtime_ns)
        for name, (_, path) in sorted(_files(package).items())
    }
    return {name: values[constant] for name, values in constants.items() if constant in values}


def added(package: str = "") -> tuple[str, ...]:
    """The packages that other distributions add to `package`; without a name, to any."""
    return tuple(sorted({entry.value for entry in additions() if package in ("", entry.name)}))


@cache
def additions() -> EntryPoints:
    """What other distributions add. Read once: it takes a look into all that are installed."""
    return entry_points(group=GROUP)


def _files(package: str) -> dict[str, tuple[str, Path]]:
    """By plug-in: its package and its file. Our own precede those of other distributions."""
    files: dict[str, tuple[str, Path]] = {}
    packages = [package, *added(package)]
    if importlib.util.find_spec(package) is None:  # no loader library is ours
        packages.remove(package)
    for home_package in packages:
        for folder in importlib.import_module(home_package).__path__:
            for path in Path(folder).glob("[!_]*.py"):
                files.setdefault(path.stem, (home_package, path))
    return files


@cache
def _literals(file: Path, _modified_ns: int) -> dict[str, Any]:
    """The module-level constants of a file that are literals, without running it. The file's time
    is a part of the cache's key: a file that is edited is read again."""
    literals = {}
    for statement in ast.parse(file.read_text(encoding="utf-8")).body:
        match statement:
            case (
                ast.Assign(targets=[ast.Name(id=name)], value=ast.expr() as value)
                | ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value)
            ) if name.isupper():
                with suppress(ValueError):
                    literals[name] = ast.literal_eval(value)
    return literals
