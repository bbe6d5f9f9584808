"""`python -m feedrate fits`: what training takes of a device's memory, before anyone rents it."""

import argparse
from collections.abc import Iterator
from itertools import groupby
from operator import itemgetter
from pathlib import Path

from msgspec.structs import asdict, replace

from feedrate.cli.display import output, table
from feedrate.cli.snakemake import add_choices, load_project
from feedrate.config.plan import make_plan, published_settings
from feedrate.config.project import Project, study_names
from feedrate.config.settings import Settings
from feedrate.config.values import cell_name
from feedrate.core.errors import UsageError
from feedrate.report.text import number
from feedrate.results.files import Column, Row, write_csv


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of this command. With a device, all its cells count, not only published ones."""
    add_choices(parser)
    parser.epilog = None
    parser.add_argument("--csv", metavar="FILE", type=Path, help="write the rows to this file")


def fits(options: argparse.Namespace) -> int:
    """Print what each cell takes; return the exit code."""
    options.study = options.study or study_names(Path())
    options.config = [*options.config, "checkpoint=null", "checkpoint_revision=null"]
    project = load_project(options)
    from feedrate.models.memory import CONTEXT_GIB, ERROR, needs  # imports torch and transformers

    rows: dict[str, Row] = {}  # by what determines the need: cells that differ elsewhere are equal
    for cell, settings in cells(project, of_plan=bool(options.device)):
        determining = (settings.model, settings.train, settings.loader.max_tokens)
        key = repr((cell["study"], cell["device"], cell["count"], determining))
        if key not in rows:
            device = replace(project.devices[cell["device"]], count=cell["count"])
            batch = {"batch": settings.train.batch_size}
            rows[key] = cell | batch | asdict(needs(settings, device))
    if not rows:
        raise UsageError("no training cell with a published number; name a --device to count all")
    columns = list(next(iter(rows.values())))
    for study, group in groupby(rows.values(), key=itemgetter("study")):
        lines = [[number_or_text(row[name]) for name in columns[1:]] for row in group]
        title = f"{study}: GiB per device"
        output().print(table(title, columns[1:], lines, left=("device", "cell")))
    margin = f"{ERROR:.0%} of the peak left, for workspaces of kernels, fragmentation and errors"
    output().print(
        f"left: memory - {CONTEXT_GIB:g} GiB for the context - peak. fits: at least {margin}"
    )
    if options.csv:
        write_csv(options.csv, [Column("text", name, "") for name in columns], rows.values())
    return 0


def cells(project: Project, *, of_plan: bool) -> Iterator[tuple[Row, Settings]]:
    """Each training cell that has a published number, or each of the plan, with its settings."""
    if of_plan:
        for spec in make_plan(project).runs.values():
            if spec.repeat == 1 and spec.task == "training":
                names = ("study", "device", "count", "cell")
                yield {name: getattr(spec, name) for name in names}, spec.settings
        return
    for name, study in project.studies.items():
        for row in project.published[name] if study.task == "training" else ():
            cell = cell_name(study.baseline | row.levels)
            place = {"study": name, "device": row.device, "count": row.count, "cell": cell}
            yield place, published_settings(project, name, row)


def number_or_text(value: float | str | None) -> str:
    """A value of a row for the table."""
    if isinstance(value, float):
        return number(value)
    return "" if value is None else str(value)
