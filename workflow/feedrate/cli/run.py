"""The commands `run` (the workflow, its report and a summary) and `cancel`."""

import argparse
import contextlib
import io
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from feedrate.cli.display import cells_table, output
from feedrate.cli.jobs import STOPPED
from feedrate.config.plan import make_plan
from feedrate.config.project import Project
from feedrate.core import paths, slurm, variables
from feedrate.core.errors import UsageError, fail, tell
from feedrate.core.processes import die_with_parent, stop_signals
from feedrate.flow import configuration, driver
from feedrate.report.text import counted
from feedrate.results.columns import CELLS
from feedrate.results.files import Row, read_csv
from feedrate.results.schema import BAD

REPORT = Path("report.html")
PART = Path(".report.part.html")
STYLE = Path("report/style.css")

LOCKED = 3
"""Exit code if another driver works in the folder."""
TWICE_WITHIN_S = 2.0
"""A stop signal that follows the first one so soon is a copy of it. Snakemake ends with a traceback
if it is interrupted again while it handles the first one."""


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
    if other := _other_driver(options.profile):
        return fail("feedrate", other, LOCKED)
    if driver.clear_dead_lock() and not quiet:
        tell("feedrate", f"the previous run was killed; continuing it{_still_on_slurm()}")
    driver.STARTED.unlink(missing_ok=True)
    words = [*others, *(["--quiet", "all"] if quiet else [])]
    code = run_snakemake(options, *words, held_back=quiet)
    if code == STOPPED:
        return fail("feedrate", "stopped; run the same command to continue", code)
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
    """Why this run must not start: another one uses this folder. Empty if there is none."""
    if occupied := driver.occupied():
        return occupied
    if other := driver.unseen_driver():
        return (
            f"a run on another host works in this folder ({other}), or was killed there; if it has "
            f"ended, remove its lock: snakemake --profile {profile} --unlock"
        )
    return ""


def _still_on_slurm() -> str:
    count = len(slurm.own_jobs())
    instead = "their results will be used (to cancel them instead: python -m feedrate cancel)"
    return f"; {count} of its jobs are still on Slurm, and {instead}" if count else ""


def _write_report(options: argparse.Namespace) -> int:
    """Write report.html on this host; the old one is replaced only if this succeeds."""
    PART.unlink(missing_ok=True)
    words = ("--executor", "local", "--report", str(PART), "--report-stylesheet", str(STYLE))
    if (code := run_snakemake(options, *words, held_back=True)) == 0:
        PART.replace(REPORT)
    return code


def measure_again(
    options: argparse.Namespace, others: Sequence[str], target: str, page: str
) -> tuple[int, list[Path]]:
    """Make a target that writes a page for each device at every call; exit code and new pages."""
    check_call(options, others)
    started_s = time.time()
    environment = {variables.ASKED_AT: f"{started_s}"}
    code = run_snakemake(options, target, *others, environment=environment)
    found = sorted(Path().glob(page.format(device="*")))
    return code, [file for file in found if file.stat().st_mtime >= started_s]


def add_cancel_options(parser: argparse.ArgumentParser) -> None:
    """The options of `cancel`."""
    parser.add_argument("-n", "--dry-run", action="store_true", help="only list the jobs")
    told = "cancel even while a run is active in this folder"
    parser.add_argument("--force", action="store_true", help=told)


def cancel(options: argparse.Namespace) -> int:
    """List this project's jobs on Slurm and cancel them; return the exit code."""
    other = driver.other_driver() or driver.unseen_driver()
    if other and not (options.force or options.dry_run):
        return fail(
            "feedrate",
            f"these jobs may belong to the active run in this folder ({other}): stop it with "
            "Ctrl-C, which cancels them, or use --force",
            LOCKED,
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


# Snakemake as a child process: its options, and how it is started and stopped.


def add_choices(parser: argparse.ArgumentParser) -> None:
    """Add the options that select a profile and override keys of config.yaml."""
    parser.add_argument("--profile", default="profiles/local", help="default: %(default)s")
    parser.add_argument("--study", action="append", help="a file in config/studies; repeatable")
    told = "an entry of devices.yaml, or `detected` for the devices of this machine; repeatable"
    parser.add_argument("--device", action="append", help=told)
    parser.add_argument("--dataset", help="an entry of `datasets` in config.yaml")
    several: dict[str, Any] = {"nargs": "+", "default": []}
    told = "YAML file that overrides keys of config.yaml"
    parser.add_argument("--configfile", "--configfiles", metavar="FILE", help=told, **several)
    several |= {"action": "extend", "metavar": "KEY=VALUE"}
    told = "keys of config.yaml in Snakemake's syntax; repeatable"
    parser.add_argument("--config", "-C", help=told, **several)
    parser.epilog = "All other options (for example --retries 2) and targets go to Snakemake."


def check_call(options: argparse.Namespace, others: Sequence[str]) -> argparse.Namespace:
    """Check a call before Snakemake starts; return what Snakemake reads in `others`. Raises
    ConfigError, and UsageError for an option or a value in `others` that Snakemake refuses."""
    check_configuration(options, others)
    if not others:
        return argparse.Namespace(dryrun=False, quiet=None)
    from snakemake.cli import parse_args  # slow
    from snakemake.exceptions import CliException, WorkflowError

    errors = io.StringIO()
    try:
        with contextlib.redirect_stderr(errors):
            found: argparse.Namespace = parse_args(list(others))[1]
    except SystemExit:
        raise UsageError(errors.getvalue().rpartition(": error: ")[2].strip()) from None
    except (CliException, WorkflowError, ValueError) as error:
        raise UsageError(f"an option of Snakemake, in {shlex.join(others)}: {error}") from None
    return found


def check_configuration(options: argparse.Namespace, targets: Iterable[str]) -> Project:
    """The project of a call, checked but for the files outside of config/: Snakemake checks them,
    which knows where jobs run. Raises ConfigError."""
    layers = layers_of(options, configuration.read_profile(options.profile))
    project = configuration.load(Path(), layers)
    configuration.check_targets(Path(), project, layers, targets)
    make_plan(project)
    return project


def layers_of(options: argparse.Namespace, profile: configuration.Profile) -> configuration.Layers:
    """The configuration of a call with a profile, file by file. Raises ConfigError."""
    files = [*profile.files, *map(Path, options.configfile)]
    return configuration.read_layers(files, assignments(options))


def assignments(options: argparse.Namespace) -> list[str]:
    """The choices as KEY=VALUE of --config."""
    chosen = {"studies": options.study, "devices": options.device}
    lists = [f"{key}=[{','.join(names)}]" for key, names in chosen.items() if names]
    dataset = [f"dataset={options.dataset}"] if options.dataset else []
    return [*lists, *dataset, *options.config]


def snakemake_arguments(options: argparse.Namespace, *words: str) -> list[str]:
    """The profile, `words` and the choices, which come last: --config takes all that follows."""
    arguments = ["--profile", options.profile, *words]
    for flag, values in (("--configfile", options.configfile), ("--config", assignments(options))):
        arguments += [flag, *values] if values else []
    return arguments


def run_snakemake(
    options: argparse.Namespace,
    *words: str,
    held_back: bool = False,
    environment: Mapping[str, str] | None = None,
) -> int:
    """Run Snakemake in its own process group, with further variables of `environment`; return the
    exit code. Ctrl-C, or a signal to this process, interrupts it with all its jobs; it ends too if
    this process is killed. With `held_back`, its messages are shown only if it fails."""
    process = subprocess.Popen(
        [sys.executable, "-m", "snakemake", *snakemake_arguments(options, *words)],
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE if held_back else None,
        text=True,
        env={**os.environ, **(environment or {})},
        process_group=0,
        preexec_fn=_begin_snakemake,
    )
    with _interrupting(process.pid) as received:
        _, errors = process.communicate()
    if received:
        return STOPPED
    if errors and process.returncode:
        lines = (line for line in errors.splitlines() if not line.startswith("Using profile"))
        print(*lines, sep="\n", file=sys.stderr)
    return process.returncode


def _begin_snakemake() -> None:
    """Die with the parent, and obey SIGINT: a shell makes its background jobs ignore it."""
    die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@contextlib.contextmanager
def _interrupting(group: int) -> Iterator[list[float]]:
    """Interrupt a process group when a stop signal comes; gives the times of such signals, s."""
    received: list[float] = []

    def interrupt(_number: int, _frame: object) -> None:
        # A signal to make's process group comes twice: make passes it on.
        repeated = bool(received) and time.monotonic() - received[0] < TWICE_WITHIN_S
        received.append(time.monotonic())
        if not repeated:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(group, signal.SIGINT)

    previous = {number: signal.signal(number, interrupt) for number in stop_signals()}
    try:
        yield received
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


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
