"""Plug-ins: modules found by their file names; constants are read without importing them.

A plug-in is one file in the package of its kind (`report/figures/`, `models/builders/`, …). It
declares facts by module-level constants in capitals. Those that are Python literals are read
without importing the module, so planning knows the sizes of a model without importing torch.
"""

import ast
import importlib
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any


def names(package: str) -> tuple[str, ...]:
    """The plug-ins of a package such as `feedrate.report.figures`, in alphabetical order."""
    return tuple(sorted({file.stem for file in _files(package)}))


def load(package: str, name: str) -> ModuleType:
    """Import a plug-in. Raises KeyError, with the known names, if there is none of this name."""
    if name not in names(package):
        raise KeyError(f"no {name!r} in {package}; known: {', '.join(names(package))}")
    return importlib.import_module(f"{package}.{name}")


def declared(package: str, constant: str) -> dict[str, Any]:
    """The literal value of a constant by the name of each plug-in that assigns it."""
    found = {}
    for file in _files(package):
        constants = _literals(file, file.stat().st_mtime_ns)
        if constant in constants:
            found[file.stem] = constants[constant]
    return dict(sorted(found.items()))


def _files(package: str) -> Iterator[Path]:
    for folder in importlib.import_module(package).__path__:
        yield from (file for file in Path(folder).glob("*.py") if not file.stem.startswith("_"))


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
