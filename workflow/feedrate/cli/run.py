"""The commands `run` (the workflow, its report and a summary) and `cancel`."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from rich.text import Text

from feedrate.cli.display import output, table
from feedrate.cli.jobs import STOPPED
from feedrate.cli.plan import add_cell_option, chosen_runs, outlook
from feedrate.cli.report import make_report
from feedrate.cli.snakemake import add_choices, check_call, is_local, load_project, run_snakemake
from feedrate.core import paths, scheduler
from feedrate.core.errors import UsageError, fail
from feedrate.flow import driver
from feedrate.flow.graph import Graph
from feedrate.report.sentences import answers
from feedrate.report.study import StudyResults
from feedrate.report.text import counted
from feedrate.results.files import RUNS, read_csv
from feedrate.results.schema import BAD

LOCKED = 3
"""Exit code if another driver works in the folder."""


def add_run_options(parser: argparse.ArgumentParser) -> None:
    """The options of `run`. `-n` and `-q` are Snakemake's own, so that `-np` works."""
    add_choices(parser)
    add_cell_option(parser)
    parser.add_argument("--quiet", action="store_true", help="print errors only (also -q)")
    shown = "show what would run (also -n)"
    parser.add_argument("--dry-run", "--dryrun", action="store_true", help=shown)


def run(options: argparse.Namespace, others: Sequence[str]) -> int:
    """Run the workflow and write its report; return the exit code."""
    given = check_call(options, others)
    if options.cell:
        others = [*_outcomes(options, given), *others]  # before options that take several words
    quiet = options.quiet or any(level.name in ("ALL", "PROGRESS") for level in given.quiet or ())
    if options.dry_run or given.dryrun:  # the number of jobs by rule; `snakemake -n` lists them
        code = run_snakemake(options, *others, "--dry-run", "--quiet", "host", "rules", "reason")
        if code == 0:
            show_outlook(options, given)
        return code
    if why := driver.occupied():
        return fail("feedrate", why, LOCKED)
    driver.STARTED.unlink(missing_ok=True)
    page = Path(paths.PAGE)
    before_ns = page.is_file() and page.stat().st_mtime_ns
    words = [*others, "--quiet", "all"] if quiet else others
    code = run_snakemake(options, *words, held_back=quiet)
    if code == STOPPED:
        return fail("feedrate", "stopped; run the same command to continue", code)
    if code and not driver.STARTED.is_file():
        return code
    if options.cell or (code and not given.targets):
        graph = Graph(load_project(options), Path().resolve())
        report_on_what_exists(graph, only_some=bool(options.cell))
    after_ns = page.is_file() and page.stat().st_mtime_ns
    if after_ns and not quiet and not (given.targets and after_ns == before_ns):
        show(page)  # not of targets without a page
    return code or (confirm_cells(graph, options.cell) if options.cell else 0)


def _outcomes(options: argparse.Namespace, given: argparse.Namespace) -> list[str]:
    """The outcomes of the chosen cells: Snakemake's targets. Raises UsageError."""
    if given.targets:
        raise UsageError(f"--cell and the target {given.targets[0]} exclude each other")
    graph = Graph(load_project(options), Path().resolve())
    return [graph.outcome(spec) for spec in chosen_runs(graph, options.cell)]


def show_outlook(options: argparse.Namespace, given: argparse.Namespace) -> None:
    """Print how many runs the targets of a dry run need, and how long they take."""
    graph = Graph(load_project(options), Path().resolve())
    targets = given.targets or ()
    runs = chosen_runs(graph, options.cell) if options.cell else graph.runs_to_do(targets)
    print(outlook(graph, runs, on_cluster=not is_local(options, given)))


def report_on_what_exists(graph: Graph, *, only_some: bool) -> None:
    """Make the results and the page of runs that have ended, if Snakemake could not make them: jobs
    of others were lost, which it has listed, or `only_some` were chosen."""
    folders = map(graph.folders.result, graph.plan.runs.values())
    has_ended = any(Path(folder, paths.OUTCOME_NAME).is_file() for folder in folders)
    if has_ended and (only_some or graph.runs_to_do()):
        make_report(graph.study_plans(ended=True))


def confirm_cells(graph: Graph, cells: Sequence[str]) -> int:
    """Say which runs of the chosen cells did not end well; return the exit code."""
    folders = {graph.folders.result(spec) for spec in chosen_runs(graph, cells)}
    files = [Path(paths.RESULTS_CSV.format(study=study)) for study in graph.project.studies]
    rows = [row for file in files for row in read_csv(file, RUNS) if not row["measured_as"]]
    bad = [
        f"{row['folder']}: {row['status']}: {row['cause']}"
        for row in rows
        if row["folder"] in folders and row["status"] in BAD
    ]
    return fail("feedrate", "\n  ".join(["these runs did not end well:", *bad])) if bad else 0


def add_cancel_options(parser: argparse.ArgumentParser) -> None:
    """The options of `cancel`."""
    parser.add_argument("-n", "--dry-run", action="store_true", help="only list the jobs")
    text = "cancel even while a run is active in this folder"
    parser.add_argument("--force", action="store_true", help=text)


def cancel(options: argparse.Namespace) -> int:
    """List this project's jobs on the cluster and cancel them; return the exit code."""
    why = driver.occupied()
    if why and not (options.force or options.dry_run):
        why += " with Ctrl-C, which cancels its jobs, or use --force"
        return fail("feedrate", why, LOCKED)
    jobs = scheduler.own_jobs()
    for job in jobs:
        print(f"{job.id}  {job.state.lower()}  {job.rule}  {job.nodes or job.reason}".rstrip())
    if not jobs:
        print(f"This project has no jobs on {scheduler.NAME}.")
    elif not options.dry_run:
        scheduler.cancel(jobs)
        print(f"Cancelled {counted(len(jobs), 'job')}.")
    return 0


def show(page: Path) -> None:
    """Print the answers of all studies in the words of the page, and its path."""
    for file in sorted(Path(paths.RESULTS).glob(f"*/{Path(paths.ANSWERS_CSV).name}")):
        plan = Path(paths.STUDY_PLAN.format(study=file.parent.name))
        if plan.is_file():
            study = StudyResults.read(plan, file.parent)
            rows = [(answer.device, answer.text) for answer in answers(study)]
            title = study.study.title
            print()
            output().print(table(title, ("", ""), rows, left=("",), wrapped=("",), header=False))
    print()
    output().print(Text(f"The report: {page.resolve()}", "bold"), soft_wrap=True)
