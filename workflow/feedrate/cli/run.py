"""The commands `run` (the workflow, its report and a summary) and `cancel`."""

import argparse
import time
from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from pathlib import Path

from rich.console import RenderableType
from rich.text import Text

from feedrate.cli.display import cells_table, output
from feedrate.cli.jobs import STOPPED
from feedrate.cli.report import make_report
from feedrate.cli.snakemake import (
    add_choices,
    check_call,
    load_project,
    run_snakemake,
)
from feedrate.core import paths, slurm
from feedrate.core.errors import fail, tell
from feedrate.flow import driver
from feedrate.flow.graph import Graph
from feedrate.report.text import counted
from feedrate.results.files import CELLS, Row, read_csv
from feedrate.results.schema import BAD

LOCKED = 3
"""Exit code if another driver works in the folder."""


def add_run_options(parser: argparse.ArgumentParser) -> None:
    """The options of `run`. `-n` and `-q` are Snakemake's own, so that `-np` works."""
    add_choices(parser)
    parser.add_argument("--quiet", action="store_true", help="print errors only (also -q)")
    shown = "show what would run (also -n)"
    parser.add_argument("--dry-run", "--dryrun", action="store_true", help=shown)


def run(options: argparse.Namespace, others: Sequence[str]) -> int:
    """Run the workflow and write its report; return the exit code."""
    given = check_call(options, others)
    levels = {level.name for level in given.quiet or ()}
    quiet = options.quiet or bool(levels & {"ALL", "PROGRESS"})
    if options.dry_run or given.dryrun:
        # With `--quiet all` Snakemake would not even print how many jobs there are.
        words = ["--dry-run", *(["--quiet", "host", "rules", "reason"] if quiet else [])]
        return run_snakemake(options, *others, *words)
    if why := driver.occupied():
        return fail("feedrate", why, LOCKED)
    driver.STARTED.unlink(missing_ok=True)
    words = [*others, *(["--quiet", "all"] if quiet else [])]
    code = run_snakemake(options, *words, held_back=quiet)
    if code == STOPPED:
        return fail("feedrate", "stopped; run the same command to continue", code)
    started = driver.STARTED.is_file()
    if code and not started:
        return code
    if code and not given.targets:
        report_on_what_exists(options)
    if not Path(paths.PAGE).is_file():
        if code == 0:
            tell("feedrate", "nothing to report yet")
        return code
    if not quiet:
        show(Path(paths.PAGE))
    return code


def report_on_what_exists(options: argparse.Namespace) -> None:
    """Make the results and the page of runs that have ended, if jobs of others were lost: then
    Snakemake could not make them. It has listed the failed jobs."""
    graph = Graph(load_project(options), Path().resolve())
    ended = [Path(outcome).is_file() for outcome in graph.all_outcomes()]
    if any(ended) and not all(ended):
        make_report(graph.study_plans(ended=True))


def measure_again(
    options: argparse.Namespace, others: Sequence[str], target: str, page: str
) -> tuple[int, list[Path]]:
    """Make a target that writes a page for each device at every call; exit code and new pages."""
    check_call(options, others)
    started_s = time.time()
    devices = load_project(options).config.devices
    rules = [paths.rule_of(f"{target}_", device) for device in devices]
    code = run_snakemake(options, target, "--forcerun", *rules, *others)
    files = sorted(Path().glob(page.format(device="*")))
    return code, [file for file in files if file.stat().st_mtime >= started_s]


def add_cancel_options(parser: argparse.ArgumentParser) -> None:
    """The options of `cancel`."""
    parser.add_argument("-n", "--dry-run", action="store_true", help="only list the jobs")
    told = "cancel even while a run is active in this folder"
    parser.add_argument("--force", action="store_true", help=told)


def cancel(options: argparse.Namespace) -> int:
    """List this project's jobs on Slurm and cancel them; return the exit code."""
    why = driver.occupied()
    if why and not (options.force or options.dry_run):
        return fail(
            "feedrate", f"{why} with Ctrl-C, which cancels its jobs, or use --force", LOCKED
        )
    jobs = slurm.own_jobs()
    for job in jobs:
        print(f"{job.id}  {job.state.lower()}  {job.rule}  {job.nodes or job.reason}".rstrip())
    if not jobs:
        print("This project has no jobs on Slurm.")
    elif not options.dry_run:
        slurm.cancel(jobs)
        print(f"Cancelled {counted(len(jobs), 'job')}.")
    return 0


# The summary at the end of a run: what was measured, what failed, where the report is.


def show(report: Path | None) -> None:
    """Print a row per cell of the studies in the report, then its path, to stdout."""
    console = output()
    cells = Path(paths.of_all_studies(paths.CELLS_CSV))
    rows = read_csv(cells, CELLS) if cells.is_file() else []
    for study, group in groupby(rows, key=itemgetter("study")):
        found = [row for row in group if not row.get("measured_as")]
        shown = [row for row in found if row["status"] != "unsupported"]
        numbers = ("samples/s", "95% interval", "data wait")
        console.print()
        console.print(cells_table(study, shown, numbers, "limited by", _values))
        if lacking := len(found) - len(shown):
            console.print(f"and cells that the device does not support: {lacking}", style="dim")
    if report is not None:
        console.print()
        console.print(Text(f"The report: {report.resolve()}", "bold"), soft_wrap=True)


def _values(row: Row) -> Iterator[RenderableType]:
    """The rate, its interval, the data wait, the verdict, and a remark."""
    rate, low, high = row["samples_per_s"], row["ci_low"], row["ci_high"]
    wait = row["data_wait_share"]
    yield "" if rate is None else f"{rate:.1f}"
    yield "" if low is None or high is None else f"{low:.1f} to {high:.1f}"
    yield "" if wait is None else f"{wait:.0%}"
    yield row["verdict"] if row["status"] == "ok" else Text(row["status"], "bold red")
    words = {"recommended": "recommended", "open": "may be best", "noisy": "noisy"}
    marks = [word for name, word in words.items() if row[name]]
    yield Text(row["cause"] if row["status"] in BAD else ", ".join(marks))
