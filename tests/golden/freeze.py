"""Golden data of specs, results and reports, and the command that writes it: see README.md."""

import contextlib
import csv
import json
import math
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from feedrate.config.plan import Plan, make_plan
from feedrate.config.project import load_project
from feedrate.config.settings import ModelSettings, Settings
from feedrate.config.spec import Protocol, RunSpec
from feedrate.config.values import read_yaml
from feedrate.core import paths
from feedrate.core.files import digest_value
from feedrate.report.audit import published
from feedrate.report.remarks import reasons, remarks
from feedrate.report.sentences import answers
from feedrate.report.study import StudyResults
from feedrate.report.table import all_tables
from feedrate.results.assemble import parse_logs
from feedrate.results.claims import check_claims
from feedrate.results.collect import collect_results, merge_results
from feedrate.results.record import RECORDS_NAME
from feedrate.results.study_plan import StudyPlan, study_plan, write_plan

GOLDEN = Path(__file__).resolve().parent
ROOT = GOLDEN.parents[1]

DIGESTS = GOLDEN / "specs/digests.json"
DEFAULTS = GOLDEN / "specs/defaults.json"
EXAMPLES = GOLDEN / "specs/examples.json"
REMOVED_KEYS = ("protocol.save_checkpoints",)
"""Keys of a spec that are compared with no value. A key with its default (in defaults.json) is left
out too, so that a setting which is removed or added changes no digest where nobody used it."""
EXAMPLE_RUNS = (
    ("bridgetower-dataloading", "cpu", "workers=2~decode=reference~strategy=ddp", 2),
    ("bridgetower-dataloading", "gaudi2", "workers=1~decode=device~strategy=fast_ddp-graphs", 1),
    ("bridgetower-speedups", "h100", "recipe=fp8~batch=96", 3),
    (
        *("bridgetower-inference", "gaudi3"),
        *("head=clip~batch=128~precision=bf16~execution=eager~preprocessing=in", 3),
    ),
    ("bridgetower-quality", "h200", "network=clip~precision=bf16~decode=host", 1),
    ("flava-scaling", "a100-40gb-x16", "size=1.8B~strategy=ac-bf16", 2),
    ("gaudi-accelerations", "gaudi2", "network=swin~technique=non-blocking", 3),
    ("dataloading-levels", "l4", "decode=device~scaled=false~workers=2", 1),
    ("vit-speedups", "rtx-4090", "size=huge~technique=beyond", 1),
    ("vit-profile", "v100", "precision=fp16", 1),
)

SMALL = GOLDEN / "studies"
"""The project of five small studies."""
PROJECTS = (GOLDEN, SMALL)
IDENTITY = "0a1b2c3d"
"""In the names of the golden runs and their data, which were made before there were identities."""
RESULT_FILES = ("results.csv", "cells.csv", "answers.csv", "claims.csv")
REMOVED_COLUMNS = (
    "step_time_min_s", "data_wait_s", "data_wait_p95_s", "copy_wait_s", "rank_wall_s",
)  # fmt: skip
"""Columns of the result files, and values of records, that were removed on purpose."""
PROSE = ("cause", "why", "statement", "disturbed", "trace")
"""Columns of sentences, which are not compared."""

FACTS = GOLDEN / "facts"
REMOVED_FACTS: tuple[str, ...] = ()
"""Tables (`window`) and columns of tables (`training/MFU`) that were removed on purpose."""
NUMBER = re.compile(r"\d+(?:,\d{3})*(?:\.\d+)?")


def write_rows(file: Path, rows: dict[str, Any]) -> None:
    """Write a JSON object with one line per key."""
    file.parent.mkdir(exist_ok=True)
    lines = [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in rows.items()]
    file.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


def flat(value: dict[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    """The values of nested objects by dotted key."""
    found: list[tuple[str, Any]] = []
    for name, inner in value.items():
        if isinstance(inner, dict):
            found += flat(inner, f"{prefix}{name}.")
        else:
            found.append((prefix + name, inner))
    return found


def defaults() -> dict[str, Any]:
    """The defaults of the keys of a spec."""
    model = ModelSettings(name="any", size="any")
    parts = {"settings": Settings(model=model), "protocol": Protocol(steps=2, warmup_steps=1)}
    known = zip(RunSpec.__struct_fields__[::-1], RunSpec.__struct_defaults__[::-1], strict=False)
    own = {name: value for name, value in known if value is not msgspec.NODEFAULT}
    found = dict(flat(msgspec.to_builtins(own | parts)))
    needed = ("settings.model.name", "settings.model.size", "protocol.steps")
    return {k: v for k, v in found.items() if k not in (*needed, "protocol.warmup_steps")}


def compared(spec: Any, usual: dict[str, Any]) -> dict[str, Any]:
    """What is compared of a spec (of its builtins): the values that differ from the defaults."""
    found: dict[str, Any] = {}
    for key, value in flat(spec):
        default = usual.get(key, ...)
        same = value == default and type(value) is type(default)
        if not same and key not in REMOVED_KEYS:
            found[key] = value
    return found


def whole_plan() -> Plan:
    """The plan of every study on every device."""
    config = read_yaml(ROOT / "config/config.yaml")
    studies = sorted(path.stem for path in (ROOT / "config/studies").glob("*.yaml"))
    devices = list(read_yaml(ROOT / "config/devices.yaml"))
    return make_plan(load_project(ROOT, config | {"studies": studies, "devices": devices}))


def spec_digests(plan: Plan, usual: dict[str, Any]) -> dict[str, dict[str, str]]:
    """By study and device: the number of runs and a digest of what is compared of their specs, in
    their order, and of the cells without runs."""
    cells: dict[str, dict[str, list[Any]]] = {}
    for (study, device, _, _), spec in plan.runs.items():
        value = compared(msgspec.to_builtins(spec), usual)
        cells.setdefault(study, {}).setdefault(device, []).append(value)
    counts = {s: {d: len(runs) for d, runs in found.items()} for s, found in cells.items()}
    for kind in (plan.unsupported, plan.shared):
        for cell in kind:
            value = [cell.cell, getattr(cell, "lacks", ""), getattr(cell, "measured_as", "")]
            cells.setdefault(cell.study, {}).setdefault(cell.device, []).append(value)
    return {
        study: {
            device: f"{counts.get(study, {}).get(device, 0)} {digest_value(values)[:16]}"
            for device, values in found.items()
        }
        for study, found in sorted(cells.items())
    }


def freeze_specs() -> None:
    """Write the digests and examples of specs again."""
    plan, usual = whole_plan(), defaults()
    write_rows(DEFAULTS, usual)
    write_rows(DIGESTS, spec_digests(plan, usual))
    examples = {"/".join(map(str, k)): msgspec.to_builtins(plan.runs[k]) for k in EXAMPLE_RUNS}
    write_rows(EXAMPLES, examples)


def make_again(kept: Path, root: Path) -> list[StudyPlan]:
    """Make the records and result files of a golden project again, from its raw run folders, in the
    new folder `root`; the plans of its studies."""
    for part in ("config", "resources", "runs"):
        shutil.copytree(kept / part, root / part)
    with contextlib.chdir(root):
        project = load_project(root, read_yaml(root / "config/config.yaml"))
        plan = make_plan(project)
        folders = {
            (study, device, cell, repeat): paths.RUN.format(
                study=study, device=device, cell=cell, repeat=repeat, identity=IDENTITY
            )
            for study, device, cell, repeat in plan.runs
        }
        plans = []
        for study in project.studies:
            dataset = next(plan.of_study(study)).dataset
            report = paths.DATA_REPORT.format(dataset=dataset, identity=IDENTITY)
            plans.append(study_plan(project, study, plan, folders, report))
            file, results = write_plan(plans[-1]), Path(paths.STUDY.format(study=study))
            for device in dict.fromkeys(run.device for run in plans[-1].runs):
                parse_logs(file, device, results)
            collect_results(file, results)
            check_claims(file, results)
        merge_results([root / paths.RESULTS / s for s in project.studies], root / paths.RESULTS)
    return plans


def read_table(file: Path) -> dict[tuple[str, ...], dict[str, str]]:
    """The rows of a result file by the columns that name them."""
    names = ("study", "device", "cell", "repeat", "claim")
    with file.open(newline="", encoding="utf-8") as stream:
        return {
            tuple(row[name] for name in names if name in row): row for row in csv.DictReader(stream)
        }


def same(old: Any, new: Any) -> bool:
    """Whether two values are equal: numbers, also as text, to 1e-12."""
    try:
        return old == new or math.isclose(float(old), float(new), rel_tol=1e-12)
    except (TypeError, ValueError):
        return False


def differences(old: Path, new: Path) -> Iterator[str]:
    """The differences between two forms of a result file, besides added columns."""
    before, after = read_table(old), read_table(new)
    for key in before.keys() ^ after.keys():
        yield f"{' '.join(key)}: {'removed' if key in before else 'added'}"
    for key in before.keys() & after.keys():
        for column, value in before[key].items():
            left_out = column in (*PROSE, *REMOVED_COLUMNS)
            if not left_out and not same(value, after[key].get(column)):
                yield f"{' '.join(key)}: {column}: {value!r}, now {after[key].get(column)!r}"


def freeze_studies() -> None:
    """Write the result files of the golden projects again, from their raw run folders."""
    for kept in PROJECTS:
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder) / "project"
            make_again(kept, root)
            for pattern in ("*.csv", "*.parquet", RECORDS_NAME):
                for file in (kept / "results").rglob(pattern):
                    shutil.copy(root / file.relative_to(kept), file)


def plain(field: Any) -> str:
    """The texts of a field of a table."""
    return " ".join(" ".join((field.text, *field.notes)).split())


def numbers(text: str) -> str:
    """The numbers in a text."""
    return " ".join(NUMBER.findall(text))


def facts_of(plan: StudyPlan) -> dict[str, dict[str, str]]:
    """The numbers that a study's page shows: by table and row those of each column, and those of
    its sentences."""
    study, facts = StudyResults(plan, Path(paths.RESULTS)), dict[str, dict[str, str]]()
    for table in all_tables():
        shown, group = table.shown(study), ""
        for line in shown.lines if shown else ():
            name = plain(line.heading)
            group = group if line.fields else name
            columns = zip(shown.heads[1:], line.fields, strict=False)
            values = {column: numbers(plain(field)) for column, field in columns}
            key = f"{table.name}/{group}/{name}"
            while key in facts:
                key += "+"
            if values := {column: value for column, value in values.items() if value}:
                facts[key] = values
    for part in (answers, published, reasons, remarks):
        for number, statement in enumerate(part(study)):
            facts[f"{part.__name__}/{number}"] = {"": numbers(statement.text)}
    return facts


def compared_facts(found: dict[str, dict[str, str]]) -> dict[str, str]:
    """The facts by row and column, without the removed ones."""
    return {
        f"{row}/{column}": value
        for row, values in found.items()
        for column, value in values.items()
        if not {row.split("/")[0], f"{row.split('/')[0]}/{column}"} & {*REMOVED_FACTS}
    }


def freeze_facts() -> None:
    """Write the facts of all reports again."""
    for kept in PROJECTS:
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
            root = Path(folder) / "project"
            plans = make_again(kept, root)
            with contextlib.chdir(root):
                for plan in plans:
                    write_rows(FACTS / f"{plan.name}.json", facts_of(plan))


PARTS = {"specs": freeze_specs, "studies": freeze_studies, "facts": freeze_facts}

if __name__ == "__main__":
    for part in sys.argv[1:] or PARTS:
        PARTS[part]()
