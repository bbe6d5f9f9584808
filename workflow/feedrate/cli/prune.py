"""`python -m feedrate prune`: what no planned run uses, with its size, and its deletion."""

import argparse
import itertools
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
        if why := driver.occupied(lock):
            raise driver.Occupied(why)
        project = load_project(options)
        graph = Graph(project, Path().resolve(), make_plan(project))
        unused: dict[str, dict[str, list[Path]]] = defaultdict(lambda: defaultdict(list))
        for title, reason, folder in (*unused_runs(graph), *unused_data(graph)):
            unused[title][reason].append(folder)
        columns, folders = ("why", "folders", "size", "newest from", "the first"), list[Path]()
        for title, reasons in unused.items():
            rows = ((reason, *_described(some)) for reason, some in reasons.items())
            output().print(table(title, columns, rows, left=columns[:1], wrapped=columns[-1:]))
            folders += itertools.chain(*reasons.values())
        text = f"{counted(len(folders), 'folder')} ({_described(folders)[1]})"
        if options.yes or not sys.stdin.isatty() or not folders:
            print(text)
        else:
            options.yes = input(f"Delete {text}? [y/N] ").strip().lower() in ("y", "yes")
        for folder in folders if options.yes else ():
            # What a kill leaves is not complete, so it does not count.
            for file in itertools.chain(*map(folder.glob, MARKS)):
                file.unlink()
            shutil.rmtree(folder, ignore_errors=True)
            _log(folder).unlink(missing_ok=True)
            with suppress(OSError):  # other runs of the cell
                folder.parent.rmdir()
    return 0


def unused_runs(graph: Graph) -> Iterator[tuple[str, str, Path]]:
    """The folders of the plan's studies and devices that are neither the result nor the target of a
    planned run, and the workplaces of jobs that have ended: title, reason and folder."""
    specs = list(graph.plan.runs.values())
    kept = {graph.folders.target(spec) for spec in specs}
    kept |= {graph.folders.result(spec) for spec in specs}
    planned = {run_folder(spec, graph.identity(spec)) for spec in specs}
    cells = (
        cell
        for study in graph.project.studies
        for device in graph.project.devices_of(study)
        for cell in sorted(Path(paths.RUNS, study, device).glob("*/"))
    )
    for cell in cells:
        title = f"Runs of {cell.parts[1]} on {cell.parts[2]}"
        names = filter(None, (_OF_RUN.fullmatch(path.name) for path in cell.iterdir()))
        runs = {
            cell / name["run"]: f"{cell}/rep{name['repeat']}-{name['identity']}" for name in names
        }
        for run, first in sorted(runs.items()):
            places = leftovers(run)
            ended = [place.path for place in places if not place.is_at_work]
            yield from ((title, LEFT, path) for path in ended)
            exists = run.exists() or _log(run).exists()
            if exists and str(run) not in kept and len(ended) == len(places):
                why = OLDER if is_complete(run) else LEFT
                yield title, why if first in planned else OTHER, run


def unused_data(graph: Graph) -> Iterator[tuple[str, str, Path]]:
    """The fetched and prepared data that no dataset of the configuration has any more. Those of
    datasets that this call does not select stay: they may be expensive to fetch."""
    for dataset in sorted(Path(paths.DATASETS).glob("*/")):
        kept: set[Path] = set()
        with suppress(KeyError, ValueError):  # no dataset of the configuration
            files = graph.data.raw_index(dataset.name), graph.data.manifest(dataset.name)
            kept = {Path(file).parent for file in files}
        for folder in sorted({*dataset.glob("raw-*/"), *dataset.glob("prepared-*/")} - kept):
            yield "Data", OTHER, folder


def _described(folders: Sequence[Path]) -> tuple[str, str, str, str]:
    """Number, size, date of the newest, and name of the first folder."""
    roots = [path for folder in folders for path in (folder, _log(folder)) if path.exists()]
    files = [file for root in roots for file in (root, *root.rglob("*"))]
    size = sum(file.lstat().st_size for file in files if file.is_file())
    newest = time.localtime(max((root.stat().st_mtime for root in roots), default=0))
    date = time.strftime("%Y-%m-%d", newest)
    return str(len(folders)), size_text(size), date, str([*folders, ""][0])


def _log(run: Path) -> Path:
    """What a run's job printed."""
    return run.with_name(f"{run.name}.log")
