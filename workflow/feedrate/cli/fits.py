"""`python -m feedrate fits`: what each cell's training takes on its device, before anyone rents it."""

import argparse
from collections.abc import Iterator
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

import msgspec

from feedrate.cli.display import output, table
from feedrate.config.plan import make_plan, published_settings
from feedrate.config.project import Project, load_project, study_names
from feedrate.config.settings import Settings
from feedrate.config.values import cell_name, read_yaml
from feedrate.core.errors import UsageError
from feedrate.results.columns import Column
from feedrate.results.tables import Row, write_csv

CONFIG = "config/config.yaml"
COLUMNS = [
    Column("study", "text", "", "The study."),
    Column("device", "text", "", "The device."),
    Column("count", "integer", "", "Devices in the job."),
    Column("cell", "text", "", "The first cell with this need."),
    Column("batch", "integer", "", "Samples per device and micro-step."),
    Column("parameters", "integer", "", "Trained or not."),
    Column("weights_gib", "number", "GiB", "Weights on a device."),
    Column("gradients_gib", "number", "GiB", "Gradients."),
    Column("states_gib", "number", "GiB", "Optimizer states."),
    Column("activations_gib", "number", "GiB", "Live at the end of the forward pass."),
    Column("peak_gib", "number", "GiB", "Peak of a step."),
    Column("memory_gib", "number", "GiB", "Of the device."),
    Column("verdict", "text", "", "fits, close (within the error), does not fit, unknown."),
    Column("largest_batch", "integer", "", "That fits; 0: none."),
]


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of this command."""
    parser.add_argument(
        "--study",
        action="append",
        help="a file in config/studies; repeatable; default: those with published numbers",
    )
    parser.add_argument(
        "--device",
        action="append",
        help="count all cells on this entry of devices.yaml, not only the published ones; repeatable",
    )
    parser.add_argument("--csv", metavar="FILE", type=Path, help="write the rows to this file")


def fits(options: argparse.Namespace) -> int:
    """Print what each cell takes; return the exit code."""
    asked: dict[str, Any] = {"studies": options.study or study_names(Path()), "checkpoint": None}
    if options.device:
        asked["devices"] = options.device
    project = load_project(Path(), read_yaml(Path(CONFIG), CONFIG) | asked)
    cells = planned(project) if options.device else published(project)
    rows = counted(project, cells)
    if not rows:
        raise UsageError("no training cell with a published number; name a --device to count all")
    for study, group in groupby(rows, key=itemgetter("study")):
        shown = COLUMNS[1:]
        found = ([_text(row[column.name]) for column in shown] for row in group)
        names = [column.name.removesuffix("_gib").replace("_", " ") for column in shown]
        output().print(table(f"{study} (GiB)", names, found, left=("device", "cell", "verdict")))
        output().print()
    if options.csv:
        write_csv(options.csv, COLUMNS, rows)
    return 0


def published(project: Project) -> Iterator[Row]:
    """Each training cell that has a published number, with its settings and number of devices."""
    for name, study in project.studies.items():
        for row in project.published[name] if study.task == "training" else ():
            settings = published_settings(project, name, row)
            if row.batch_size:
                train = msgspec.structs.replace(settings.train, batch_size=row.batch_size)
                settings = msgspec.structs.replace(settings, train=train)
            cell = cell_name(study.baseline | row.levels)
            where = {"study": name, "device": row.device, "count": row.count, "cell": cell}
            yield {**where, "settings": settings}


def planned(project: Project) -> Iterator[Row]:
    """Each training cell of the plan."""
    for spec in make_plan(project).runs.values():
        if spec.repeat == 1 and spec.task == "training":
            names = ("study", "device", "count", "cell", "settings")
            yield {name: getattr(spec, name) for name in names}


def counted(project: Project, cells: Iterator[Row]) -> list[Row]:
    """A row for each distinct need of the cells of a study on a device."""
    from feedrate.models.memory import needs  # imports torch and transformers

    rows: dict[tuple[Any, ...], Row] = {}
    for cell in cells:
        settings: Settings = cell.pop("settings")
        work = settings.model, settings.train, settings.loader.max_tokens
        key = cell["study"], cell["device"], cell["count"], repr(work)
        if key in rows:
            continue
        device = msgspec.structs.replace(project.devices[cell["device"]], count=cell["count"])
        found = msgspec.structs.asdict(needs(settings, device))
        rows[key] = {**cell, "batch": settings.train.batch_size, **found}
    return list(rows.values())


def _text(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.2f}" if isinstance(value, float) else str(value)
