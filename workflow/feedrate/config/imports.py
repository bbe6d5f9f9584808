"""Runs that others made: the folders of their logs in config.yaml and in `results/imports.json`,
which `feedrate import` writes and every plan reads."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from feedrate.config.devices import Device
from feedrate.config.errors import Findings, Origin, numbered
from feedrate.config.study import Study, Table, setting_type
from feedrate.config.values import Count, Level, Name, Positive, Strict, about, load
from feedrate.core import paths

KIND = "imported"
PAGE = Table(name=KIND, kind=KIND, title="Runs of others, imported", caption="table_imported")
"""The table that a study with imports has, whether it lists one or not."""


class Import(Strict, kw_only=True):
    """A folder with the logs of runs on one device. What it does not say stays unknown."""

    folder: Annotated[
        str, Meta(description="Folder or file, absolute or from the project's root.", min_length=1)
    ]
    study: Annotated[Name, about("The study that the runs belong to.")]
    device: Annotated[Name, about("The device that they ran on: an entry of devices.yaml.")]
    levels: Annotated[
        dict[Name, Level], about("Levels of the study's factors; others stay unknown.")
    ] = {}
    batch_size: Annotated[Count | None, about("Samples of a device in one optimizer step.")] = None
    precision: Annotated[Name | None, about("bf16, fp16, …; null: any that has a peak.")] = None
    flops_per_sample: Annotated[
        Positive | None, about("Forward and backward; null: by the Trainer's total_flos.")
    ] = None
    only: Annotated[str, about("Pattern for the file or the name of the runs to take.")] = "*"
    source: Annotated[str, about("Who made them, for the report.")] = ""


def read_imports(root: Path, configured: list[Import]) -> list[Import]:
    """The imports in the configuration, then those of `feedrate import`. Raises ConfigError for a
    damaged file."""
    file = root / paths.IMPORTS
    added = load(file, list[Import], paths.IMPORTS) if file.is_file() else []
    return configured + [one for one in added if one not in configured]


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
        study = studies.get(one.study)
        for name, level in one.levels.items():
            if study and found.known(f"{key}.levels", name, study.factors, "the study's factors"):
                factor, place = study.factors[name], f"{key}.levels.{name}"
                if factor.sets:
                    found.fits(place, level, setting_type(factor.sets))
                else:
                    found.known(place, level, factor.levels, "its levels")
    return found


def with_page(study: Study, name: str, imports: list[Import]) -> Study:
    """The study with a table of its imported runs, if it has imports."""
    listed = any(table.kind == KIND for table in study.tables)
    if listed or not any(one.study == name for one in imports):
        return study
    return msgspec.structs.replace(study, tables=[*study.tables, PAGE])
