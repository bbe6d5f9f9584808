"""`python -m feedrate run`: the workflow, its report and a summary."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from rich.text import Text

from feedrate.cli.display import output, table
from feedrate.cli.jobs import STOPPED
from feedrate.cli.plan import add_cell_option, chosen_runs, outlook
from feedrate.cli.report import make_report
from feedrate.cli.snakemake import add_choices, check_call, is_local, load_graph, run_snakemake
from feedrate.core import paths
from feedrate.core.errors import UsageError, fail
from feedrate.flow import driver
from feedrate.flow.graph import Graph
from feedrate.report.sentences import answers
from feedrate.report.study import StudyResults
from feedrate.results.files import RUNS, read_csv
from feedrate.results.schema import BAD


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of this command. `-n` and `-q` are Snakemake's own, so that `-np` works."""
    add_choices(parser)
    add_cell_option(parser)
    parser.add_argument("--quiet", action="store_true", help="print errors only (also -q)")
    text = "show what would run (also -n)"
    parser.add_argument("--dry-run", "--dryrun", action="store_true", help=text)


def run(options: argparse.Namespace, words: Sequence[str]) -> int:
    """Run the workflow and write its report; return the exit code."""
    snakemake = check_call(options, words)
    if options.cell:
        if snakemake.targets:
            target = snakemake.targets[0]
            raise UsageError(f"--cell and the target {target} exclude each other")
        graph = load_graph(options)
        outcomes = [graph.outcome(spec) for spec in chosen_runs(graph, options.cell)]
        words = [*outcomes, *words]  # before options that take several words
    if options.dry_run or snakemake.dryrun:
        # The number of jobs by rule; `snakemake -n` lists them.
        code = run_snakemake(options, *words, "--dry-run", "--quiet", "host", "rules", "reason")
        if code == 0:
            show_outlook(options, snakemake)
        return code
    if reason := driver.occupied():
        raise driver.Occupied(reason)
    driver.STARTED.unlink(missing_ok=True)
    page = Path(paths.PAGE)
    before_ns = page.stat().st_mtime_ns if page.is_file() else None
    is_quiet = options.quiet or any(
        level.name in ("ALL", "PROGRESS") for level in snakemake.quiet or ()
    )
    if is_quiet:
        words = [*words, "--quiet", "all"]
    code = run_snakemake(options, *words, held_back=is_quiet)
    if code == STOPPED:
        return fail("feedrate", "stopped; run the same command to continue", code)
    if code and not driver.STARTED.is_file():
        return code
    if options.cell or (code and not snakemake.targets):
        report_on_what_exists(load_graph(options), only_some=bool(options.cell))
    after_ns = page.stat().st_mtime_ns if page.is_file() else None
    is_of_this_call = not snakemake.targets or after_ns != before_ns
    if after_ns and is_of_this_call and not is_quiet:
        show(page)
    if options.cell and not code:
        return confirm_cells(load_graph(options), options.cell)
    return code


def show_outlook(options: argparse.Namespace, snakemake: argparse.Namespace) -> None:
    """Print how many runs the targets of a dry run need, and how long they take."""
    graph = load_graph(options)
    if options.cell:
        runs = chosen_runs(graph, options.cell)
    else:
        runs = graph.runs_to_do(snakemake.targets or ())
    print(outlook(graph, runs, on_cluster=not is_local(options, snakemake)))


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
    bad = []
    for study in graph.project.studies:
        for row in read_csv(Path(paths.RESULTS_CSV.format(study=study)), RUNS):
            is_chosen = row["folder"] in folders and not row["measured_as"]
            if is_chosen and row["status"] in BAD:
                bad.append(f"{row['folder']}: {row['status']}: {row['cause']}")
    return fail("feedrate", "\n  ".join(["these runs are not ok:", *bad])) if bad else 0


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
