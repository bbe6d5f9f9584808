"""`python -m feedrate run`: the workflow, then the report, then a summary on the terminal."""

import argparse
import csv
from pathlib import Path

from rich.table import Table
from rich.text import Text

from feedrate.cli.console import output, titled, varying
from feedrate.cli.jobs import STOPPED
from feedrate.cli.snakemake import add_choices, check_options, config_arguments, run_snakemake
from feedrate.config.values import BETWEEN_LEVELS, level_text, parse_levels
from feedrate.core import paths, slurm
from feedrate.core.errors import fail, tell
from feedrate.flow import driver
from feedrate.results.schema import BAD

REPORT = Path("report.html")
PART = Path(".report.part.html")
STYLE = Path("report/style.css")

LOCKED = 3
"""Exit code where another driver works in the folder."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of this command. `-n` and `-q` are Snakemake's own, so that `-np` works."""
    add_choices(parser)
    parser.add_argument("--quiet", action="store_true", help="print errors only (also -q)")
    parser.add_argument(
        "--dry-run", "--dryrun", action="store_true", help="show what would run (also -n)"
    )


def run(options: argparse.Namespace, others: list[str]) -> int:
    """Run the workflow and write its report; return the exit code."""
    given = check_options(others)
    levels = {level.name for level in given.quiet or ()}
    quiet = options.quiet or bool(levels & {"ALL", "PROGRESS"})
    arguments = ["--profile", options.profile, *others]
    if options.dry_run or given.dryrun:
        # With `--quiet all` Snakemake would not even print how many jobs there are.
        arguments += ["--dry-run", *(("--quiet", "host", "rules", "reason") if quiet else ())]
        return run_snakemake([*arguments, *config_arguments(options)])
    if other := _other_driver(options.profile):
        return fail("feedrate", other, LOCKED)
    if driver.clear_dead_lock() and not quiet:
        goes_on = "the run before this one was killed; going on from there"
        tell("feedrate", goes_on + _still_on_slurm())
    arguments += [*(("--quiet", "all") if quiet else ()), *config_arguments(options)]
    driver.STARTED.unlink(missing_ok=True)
    code = run_snakemake(arguments, held_back=quiet)
    if code == STOPPED:
        return fail("feedrate", "stopped; the same command goes on from here", code)
    if code and not driver.STARTED.is_file():
        return code
    if not Path(paths.OVERVIEW).is_file():
        if code == 0:
            tell("feedrate", "nothing to report yet")
        return code
    report_code = _write_report(options)
    if not quiet:
        show(REPORT if report_code == 0 else None)
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


# The end of a run on the terminal: what was measured, what failed, where the report is.


def show(report: Path | None) -> None:
    """Print a row per cell of the studies in the report, then its path, to stdout."""
    console = output()
    for study, rows in _by_study(Path(paths.of_all_studies(paths.CELLS_CSV))).items():
        shown = [row for row in rows if row["status"] != "unsupported"]
        console.print()
        console.print(_table(study, shown))
        if lacking := len(rows) - len(shown):
            console.print(f"and cells that a device does not support: {lacking}", style="dim")
    if report is not None:
        console.print()
        console.print(Text(f"The report: {report.resolve()}", "bold"), soft_wrap=True)


def _by_study(cells: Path) -> dict[str, list[dict[str, str]]]:
    """The rows of cells.csv by study; none where the workflow did not come so far."""
    studies: dict[str, list[dict[str, str]]] = {}
    if cells.is_file():
        with cells.open(newline="", encoding="utf-8") as stream:
            for row in csv.DictReader(stream):
                studies.setdefault(row["study"], []).append(row)
    return studies


def _table(study: str, rows: list[dict[str, str]]) -> Table:
    factors = varying([parse_levels(row["cell"], BETWEEN_LEVELS) for row in rows])
    table = titled(study)
    table.add_column("device", no_wrap=True)
    for name in (*factors, "samples/s", "95% interval", "data wait"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("limited by", no_wrap=True)
    table.add_column("")
    for row in rows:
        levels = parse_levels(row["cell"], BETWEEN_LEVELS)
        table.add_row(
            row["device"],
            *(level_text(levels[name]) for name in factors),
            _number(row["samples_per_s"], "{:.1f}"),
            _interval(row),
            _number(row["data_wait_share"], "{:.0%}"),
            row["verdict"] if row["status"] == "ok" else Text(row["status"], "bold red"),
            _remark(row),
        )
    return table


def _interval(row: dict[str, str]) -> str:
    if not row["ci_low"] or not row["ci_high"]:
        return ""
    return f"{float(row['ci_low']):.1f} to {float(row['ci_high']):.1f}"


def _remark(row: dict[str, str]) -> str:
    if row["status"] in BAD:
        return row["cause"]
    marks = [("recommended", "recommended"), ("noisy", "noisy")]
    return ", ".join(word for column, word in marks if row[column] in ("True", "true"))


def _number(text: str, pattern: str) -> str:
    return pattern.format(float(text)) if text else ""
