"""`python -m feedrate run`: the workflow, then the report, then a summary on the terminal."""

import argparse
from pathlib import Path

from feedrate import driver, paths
from feedrate.cluster import slurm
from feedrate.commands.options import add_choices, config_arguments
from feedrate.commands.snakemake import STOPPED, run_snakemake
from feedrate.endings import fail, tell

REPORT = Path("report.html")
PART = Path(".report.part.html")
STYLE = Path("report/style.css")

LOCKED = 3
"""Exit code where another driver works in the folder."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of this command."""
    add_choices(parser)
    parser.add_argument("-q", "--quiet", action="store_true", help="print errors only")
    parser.add_argument("-n", "--dry-run", action="store_true", help="show what would run")


def run(options: argparse.Namespace, passed_on: list[str]) -> int:
    """Run the workflow and write its report; the exit code."""
    if other := _other_driver(options.profile):
        return fail("feedrate", other, LOCKED)
    if driver.clear_dead_lock() and not options.quiet:
        goes_on = "the run before this one was killed; going on from there"
        tell("feedrate", goes_on + _still_on_slurm())
    code = run_snakemake(_workflow_arguments(options, passed_on), held_back=options.quiet)
    if code == STOPPED:
        return fail("feedrate", "stopped; the same command goes on from here", code)
    if options.dry_run:
        return code
    if not Path(paths.OVERVIEW).is_file():
        if code == 0:
            tell("feedrate", "nothing to report yet")
        return code
    report_code = _write_report(options)
    if not options.quiet:
        from feedrate import summary  # heavy

        summary.show(REPORT if report_code == 0 else None)
    return code or report_code


def _other_driver(profile: str) -> str:
    """Why this folder is taken, if it is."""
    if occupied := driver.occupied():
        return occupied
    if other := driver.unseen_driver():
        return (
            f"a run on another host works in this folder ({other}), or was killed there; if it is "
            f"gone, say: snakemake --profile {profile} --unlock"
        )
    return ""


def _still_on_slurm() -> str:
    jobs = slurm.own_jobs()
    if not jobs:
        return ""
    return (
        f"; {len(jobs)} of its jobs are still on Slurm, and their results will be used (to end "
        "them instead: python -m feedrate cancel)"
    )


def _workflow_arguments(options: argparse.Namespace, passed_on: list[str]) -> list[str]:
    arguments = ["--profile", options.profile, *passed_on]
    if options.quiet:
        arguments += ["--quiet", "all"]
    if options.dry_run:
        arguments += ["--dry-run"]
    return arguments + config_arguments(options)


def _write_report(options: argparse.Namespace) -> int:
    """Write report.html in one step, on this host; the old one stays where this fails."""
    PART.unlink(missing_ok=True)
    code = run_snakemake(
        [
            *("--profile", options.profile, "--executor", "local"),
            *("--report", str(PART), "--report-stylesheet", str(STYLE)),
            *config_arguments(options),
        ],
        held_back=True,
    )
    if code == 0:
        PART.replace(REPORT)
    return code
