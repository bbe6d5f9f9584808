"""Digests of Python code, and the modules of this package that it imports, from its syntax tree."""

import ast
from pathlib import Path
from typing import Any

from feedrate.core.files import digest_value

NAME = __name__.partition(".")[0]
"""The name of this package."""


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
    """Names of this package that the code imports anywhere: modules, or names in modules."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module)
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
    return sorted(name for name in found if name.split(".")[0] == NAME)


def digest_module(path: Path) -> list[Any]:
    """The digest of a module's code, and the names that it imports of this package."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return [digest_code(tree), imported_modules(tree)]


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(getattr(node.value, "value", None), str)
