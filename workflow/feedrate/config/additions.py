"""Additions of earlier calls of feedrate to the configuration, in files that every plan reads.

- `results/searched.json`: levels that a study's `search` has tried.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

import msgspec

from feedrate.config.errors import ConfigError
from feedrate.config.study import Study
from feedrate.config.values import Level, load
from feedrate.core import paths

T = TypeVar("T")
Searched = dict[str, dict[str, list[str]]]
"""By study and level (as text): the cells that have it, as device/cell."""


def read_added(root: Path, path: str, kind: type[T], absent: T) -> T:
    """The values of a file, or `absent` without it. Raises ConfigError for a damaged file."""
    file = root / path
    return load(file, kind, path) if file.is_file() else absent


def read_searched(root: Path, studies: Mapping[str, Study]) -> Searched:
    """The levels that searches have added to these studies. Raises ConfigError for a damaged file,
    and for a searched factor whose levels are not whole numbers."""
    found = read_added(root, paths.SEARCHED, Searched, {})
    searched: Searched = {}
    for name, study in studies.items():
        listed = study.factors[study.search].levels if study.search else []
        if not all(type(level) is int for level in listed):
            wrong = f"{study.search!r} is not allowed; its levels must be whole numbers"
            raise ConfigError(f"config/studies/{name}.yaml: search: {wrong}")
        texts = set(map(str, listed))
        new = {level: cells for level, cells in found.get(name, {}).items() if level not in texts}
        if study.search and new:
            searched[name] = new
    return searched


def with_levels(study: Study, added: Mapping[str, list[str]]) -> Study:
    """The study with the levels that a search has added, in ascending order."""
    if not study.search or not added:
        return study
    factor = study.factors[study.search]
    levels: list[Level] = sorted([*factor.levels, *map(int, added)], key=int)
    longer = msgspec.structs.replace(factor, levels=levels)
    return msgspec.structs.replace(study, factors=study.factors | {study.search: longer})
