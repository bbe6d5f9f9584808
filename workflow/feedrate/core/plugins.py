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
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

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
    found = {}
    for name, (_, path) in sorted(_files(package).items()):
        constants = _literals(path, path.stat().st_mtime_ns)
        if constant in constants:
            found[name] = constants[constant]
    return found


class Kind(NamedTuple):
    """A kind of a plug-in that has several."""

    plugin: str
    place: int  # among the kinds of the package


def kinds(package: str) -> dict[str, Kind]:
    """The kinds that the plug-ins of a package name, with their places, in a constant KINDS."""
    return {
        kind: Kind(plugin, place)
        for plugin, places in declared(package, "KINDS").items()
        for kind, place in places.items()
    }


def load_kind(package: str, kind: str) -> Any:
    """What a plug-in has for a kind, under the kind's name."""
    return getattr(load(package, kinds(package)[kind].plugin), kind)


@cache
def added(package: str = "") -> tuple[str, ...]:
    """The packages that other distributions add to `package`; without a name, to any."""
    chosen = entry_points(group=GROUP, name=package) if package else entry_points(group=GROUP)
    return tuple(sorted({entry.value for entry in chosen}))


def _files(package: str) -> dict[str, tuple[str, Path]]:
    """By plug-in: its package and its file. Our own precede those of other distributions."""
    found: dict[str, tuple[str, Path]] = {}
    ours = (package,) if importlib.util.find_spec(package) else ()  # no loader library is ours
    for one in (*ours, *added(package)):
        for folder in importlib.import_module(one).__path__:
            for path in Path(folder).glob("*.py"):
                if not path.stem.startswith("_"):
                    found.setdefault(path.stem, (one, path))
    return found


@cache
def _literals(file: Path, _modified_ns: int) -> dict[str, Any]:
    """The module-level constants of a file that are literals, without running it."""
    found = {}
    for statement in ast.parse(file.read_text(encoding="utf-8")).body:
        if isinstance(statement, ast.Assign):
            targets, value = statement.targets, statement.value
        elif isinstance(statement, ast.AnnAssign) and statement.value is not None:
            targets, value = [statement.target], statement.value
        else:
            continue
        for target in targets:
            if isinstance(target, ast.Name) and target.id.isupper():
                with suppress(ValueError):
                    found[target.id] = ast.literal_eval(value)
    return found
