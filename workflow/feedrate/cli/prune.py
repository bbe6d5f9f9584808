"""`python -m feedrate prune`: what no planned run uses, with its size, and its deletion."""

import argparse
import re
import shutil
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from feedrate.cli.display import output, table
from feedrate.cli.snakemake import add_choices, load_project
from feedrate.config.plan import make_plan
from feedrate.config.values import size_text
from feedrate.core import paths
from feedrate.flow import driver
from feedrate.flow.folders import run_folder
from feedrate.flow.graph import Graph
from feedrate.jobs.workplace import is_complete, leftovers
from feedrate.report.text import counted

OTHER, OLDER = "other settings, code, data or environment", "an older attempt"
LEFT = "left by a job"
MARKS = (paths.OUTCOME_NAME, "store-*/index.json", "manifest.json", "index.json")
"""The files that make a folder complete."""
_OF_RUN = re.compile(rf"\.?(?P<run>{paths.RUN_FOLDER.pattern})(?:\..+)?")
"""The name of a run's folder, of its log, or of a workplace."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of this command."""
    add_choices(parser)
    parser.epilog = None
    parser.add_argument("--yes", action="store_true", help="delete without a question")


def prune(options: argparse.Namespace) -> int:
    """List what no planned run of this call uses, and delete it if the user agrees; return the exit
    code. No driver can start meanwhile."""
    driver.LOCK.parent.mkdir(exist_ok=True)
    with driver.LOCK.open("a+", encoding="utf-8") as lock:
        if reason := driver.occupied(lock):
            raise driver.Occupied(reason)
        project = load_project(options)
        # Runs whose library is not installed here are planned too.
        graph = Graph(project, Path().resolve(), make_plan(project))
        unused: dict[str, dict[str, list[Path]]] = defaultdict(lambda: defaultdict(list))
        for title, reason, folder in (*unused_runs(graph), *unused_data(graph)):
            unused[title][reason].append(folder)
        columns = ("why", "folders", "size", "newest from", "the first")
        all_folders: list[Path] = []
        for title, reasons in unused.items():
            rows = []
            for reason, folders in reasons.items():
                size, date = size_and_date(folders)
                rows.append((reason, str(len(folders)), size, date, str(folders[0])))
                all_folders += folders
            output().print(table(title, columns, rows, left=("why",), wrapped=("the first",)))
        text = f"{counted(len(all_folders), 'folder')} ({size_and_date(all_folders)[0]})"
        is_agreed = options.yes
        if is_agreed or not sys.stdin.isatty() or not all_folders:
            print(text)
        else:
            is_agreed = input(f"Delete {text}? [y/N] ").strip().lower() in ("y", "yes")
        if is_agreed:
            for folder in all_folders:
                delete(folder)
    return 0


def unused_runs(graph: Graph) -> Iterator[tuple[str, str, Path]]:
    """The folders of the plan's studies and devices that are neither the result nor the target of a
    planned run, and the workplaces of jobs that have ended: title, reason and folder."""
    specs = list(graph.plan.runs.values())
    used = {graph.folders.target(spec) for spec in specs}
    used |= {graph.folders.result(spec) for spec in specs}
    planned = {run_folder(spec, graph.identity(spec)) for spec in specs}
    for study in graph.project.studies:
        for device in graph.project.devices_of(study):
            title = f"Runs of {study} on {device}"
            for cell in sorted(Path(paths.RUNS, study, device).glob("*/")):
                names = filter(None, (_OF_RUN.fullmatch(path.name) for path in cell.iterdir()))
                first_attempts = {
                    cell / name["run"]: f"{cell}/rep{name['repeat']}-{name['identity']}"
                    for name in names
                }
                for run, first_attempt in sorted(first_attempts.items()):
                    places = leftovers(run)
                    for place in places:
                        if not place.is_at_work:
                            yield title, LEFT, place.path
                    is_at_work = any(place.is_at_work for place in places)
                    exists = run.exists() or log_of(run).exists()
                    if not exists or is_at_work or str(run) in used:
                        continue
                    if first_attempt not in planned:
                        yield title, OTHER, run
                    else:
                        yield title, OLDER if is_complete(run) else LEFT, run


def unused_data(graph: Graph) -> Iterator[tuple[str, str, Path]]:
    """The fetched and prepared data that no dataset of the configuration has any more. Those of
    datasets that this call does not select stay: they may be expensive to fetch."""
    for dataset in sorted(Path(paths.DATASETS).glob("*/")):
        used: set[Path] = set()
        with suppress(KeyError, ValueError):  # no dataset of the configuration
            files = graph.data.raw_index(dataset.name), graph.data.manifest(dataset.name)
            used = {Path(file).parent for file in files}
        for folder in sorted({*dataset.glob("raw-*/"), *dataset.glob("prepared-*/")} - used):
            yield "Data", OTHER, folder


def delete(folder: Path) -> None:
    """Delete a folder and its log. What a kill in the meantime leaves is not complete."""
    for mark in MARKS:
        for file in folder.glob(mark):
            file.unlink()
    shutil.rmtree(folder, ignore_errors=True)
    log_of(folder).unlink(missing_ok=True)
    with suppress(OSError):  # other runs of the cell
        folder.parent.rmdir()


def size_and_date(folders: Sequence[Path]) -> tuple[str, str]:
    """The size of folders with their logs, and the date of the newest."""
    roots = [path for folder in folders for path in (folder, log_of(folder)) if path.exists()]
    files = [file for root in roots for file in (root, *root.rglob("*"))]
    size_bytes = sum(file.lstat().st_size for file in files if file.is_file())
    newest_s = max((root.stat().st_mtime for root in roots), default=0)
    return size_text(size_bytes), time.strftime("%Y-%m-%d", time.localtime(newest_s))


def log_of(run: Path) -> Path:
    """What a run's job printed."""
    return run.with_name(f"{run.name}.log")
