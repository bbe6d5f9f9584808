"""A project whose configuration, environments and code a test may edit, planned in this process."""

import shutil
from pathlib import Path
from typing import Any

from feedrate.config.project import load_project
from feedrate.config.spec import RunSpec
from feedrate.config.values import read_yaml
from feedrate.flow.graph import Graph

ROOT = Path(__file__).resolve().parents[3]


class Copy:
    """A copy of this project."""

    def __init__(self, root: Path) -> None:
        self.root = root
        for part in ("config", "envs", "workflow/feedrate"):
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(ROOT / part, root / part, ignore=ignored)

    def graph(self, **changes: Any) -> Graph:
        """The graph of its configuration, with some keys of config.yaml changed."""
        config = read_yaml(self.root / "config/config.yaml") | changes
        return Graph(load_project(self.root, config), self.root)

    def edit(self, file: str, old: str, new: str) -> None:
        """Replace the first occurrence of a text; an empty one is at the beginning."""
        text = (self.root / file).read_text(encoding="utf-8")
        assert old in text, f"{old!r} is not in {file}"
        (self.root / file).write_text(text.replace(old, new, 1), encoding="utf-8")

    def write(self, file: str, text: str = "") -> Path:
        """Write a file."""
        path = self.root / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path


def pick(graph: Graph, **values: Any) -> RunSpec:
    """The first planned run with these values of its spec or its levels."""
    return next(
        spec
        for spec in graph.plan.runs.values()
        if all(spec.levels.get(k, getattr(spec, k, None)) == v for k, v in values.items())
    )
