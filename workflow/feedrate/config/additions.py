"""Additions of earlier calls of feedrate to the configuration, in files that every plan reads.

- `results/imports.json`: folders with logs of runs that others made (`feedrate import`). The key
  `imports` of config.yaml lists such folders too.
- `results/repeats.json`: further repeats of cells, with `repeats: auto`.
- `results/searched.json`: levels that a study's `search` has tried.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, TypeVar

import msgspec

from feedrate.config.devices import Device
from feedrate.config.errors import ConfigError, Findings, Origin, numbered
from feedrate.config.study import Study, Table, check_levels
from feedrate.config.values import Count, Level, Name, Positive, Strict, Text, about, load
from feedrate.core import paths

T = TypeVar("T")
Searched = dict[str, dict[str, list[str]]]
"""By study and level (as text): the cells that have it, as device/cell."""

KIND = "imported"
PAGE = Table(name=KIND, kind=KIND, title="Runs of others, imported", caption="table_imported")
"""The table that a study with imports has, whether it lists one or not."""


class Import(Strict, kw_only=True):
    """A folder with the logs of runs on one device. What it does not say stays unknown."""

    folder: Annotated[Text, about("Folder or file, absolute or from the project's root.")]
    study: Annotated[Name, about("The study that the runs belong to.")]
    device: Annotated[Name, about("The device that they ran on: an entry of devices.yaml.")]
    levels: Annotated[dict[Name, Level], about("The study's levels; others stay unknown.")] = {}
    batch_size: Annotated[Count | None, about("Samples of a device in one optimizer step.")] = None
    precision: Annotated[Name | None, about("bf16, fp16, …; null: any that has a peak.")] = None
    flops_per_sample: Annotated[
        Positive | None, about("Forward and backward; null: by the Trainer's total_flos.")
    ] = None
    only: Annotated[str, about("Pattern for the file or the name of the runs to take.")] = "*"
    source: Annotated[str, about("Who made them, for the report.")] = ""


def read_added(root: Path, path: str, kind: type[T], absent: T) -> T:
    """The values of a file, or `absent` without it. Raises ConfigError for a damaged file."""
    file = root / path
    return load(file, kind, path) if file.is_file() else absent


def check_imports(
    origin: Origin,
    imports: list[Import],
    studies: Mapping[str, Study],
    devices: Mapping[str, Device],
) -> list[str]:
    """Check imports against the registry, and the levels of those for these studies."""
    found = Findings(origin)
    for key, one in numbered("imports[{}]", imports):
        found.known(f"{key}.device", one.device, devices, "entries of config/devices.yaml")
        if one.study in studies:
            check_levels(found, f"{key}.levels", one.levels, studies[one.study])
    return found


def with_page(study: Study, name: str, imports: list[Import]) -> Study:
    """The study with a table of its imported runs, if it has imports."""
    listed = any(table.kind == KIND for table in study.tables)
    if listed or not any(one.study == name for one in imports):
        return study
    return msgspec.structs.replace(study, tables=[*study.tables, PAGE])


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
