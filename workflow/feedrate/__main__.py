"""`python -m feedrate run`: the workflow, then the report, then a summary on the terminal."""

import argparse
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from feedrate import driver, paths, summary
from feedrate.devices.leash import die_with_parent

REPORT = Path("report.html")
PART = Path(".report.part.html")
STYLE = Path("report/style.css")

LOCKED = 3
"""Exit code where another driver works in the folder."""
STOPPED = 130
"""Exit code after Ctrl-C."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    options, unknown = _parser().parse_known_args(arguments)
    passed_on = [argument for argument in unknown if argument != "--"]
    if not Path("Snakefile").is_file():
        return _fail("run this in the project's root folder (there is no Snakefile here)", 2)
    other = driver.other_driver()
    if other:
        return _fail(
            f"another run works in this folder ({other}); wait for it, or stop it with Ctrl-C",
            LOCKED,
        )
    if driver.clear_dead_lock() and not options.quiet:
        print("feedrate: the run before this one was killed; going on from there", file=sys.stderr)
    code = _snakemake(_workflow_arguments(options, passed_on), held_back=options.quiet)
    if code == STOPPED:
        return _fail("stopped; the same command goes on from here", code)
    if options.dry_run:
        return code
    if not Path(paths.OVERVIEW).is_file():
        return code or _fail("nothing to report yet", 0)
    report_code = _write_report(options)
    if not options.quiet:
        summary.show(REPORT if report_code == 0 else None)
    return code or report_code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m feedrate", description=__doc__, epilog="Other options go to Snakemake."
    )
    parser.add_argument("command", choices=["run"])
    parser.add_argument("--profile", default="profiles/local", help="default: %(default)s")
    parser.add_argument("--study", action="append", help="a file in config/studies; repeatable")
    parser.add_argument("--device", action="append", help="an entry of devices.yaml; repeatable")
    parser.add_argument("--dataset", help="one of `datasets` in config.yaml")
    parser.add_argument("--configfile", help="YAML that overrides keys of config.yaml")
    parser.add_argument("-q", "--quiet", action="store_true", help="print errors only")
    parser.add_argument("-n", "--dry-run", action="store_true", help="show what would run")
    return parser


def _workflow_arguments(options: argparse.Namespace, passed_on: list[str]) -> list[str]:
    """Snakemake's arguments; --config comes last, as it takes all that follows."""
    arguments = ["--profile", options.profile, *passed_on]
    if options.quiet:
        arguments += ["--quiet", "all"]
    if options.dry_run:
        arguments += ["--dry-run"]
    return arguments + _config_arguments(options)


def _config_arguments(options: argparse.Namespace) -> list[str]:
    values = [
        f"{key}=[{','.join(names)}]"
        for key, names in (("studies", options.study), ("devices", options.device))
        if names
    ]
    if options.dataset:
        values.append(f"dataset={options.dataset}")
    files = ["--configfile", options.configfile] if options.configfile else []
    return [*files, *(["--config", *values] if values else [])]


def _snakemake(arguments: list[str], *, held_back: bool = False) -> int:
    """Run Snakemake in this interpreter's environment, in a process group of its own.

    So Ctrl-C, or a signal to this process alone, reaches Snakemake and all its jobs in one way; and
    a killed wrapper takes Snakemake with it. `held_back`: what Snakemake prints is shown after its
    end, and only where it fails.
    """
    process = subprocess.Popen(
        [sys.executable, "-m", "snakemake", *arguments],
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE if held_back else None,
        text=True,
        process_group=0,
        preexec_fn=die_with_parent,
    )
    stopped = False

    def stop(_number: int, _frame: object) -> None:
        nonlocal stopped
        stopped = True
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGINT)

    previous = {n: signal.signal(n, stop) for n in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        _, errors = process.communicate()
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
    if stopped:
        return STOPPED
    if errors and process.returncode:
        lines = [line for line in errors.splitlines() if not line.startswith("Using profile")]
        print("\n".join(lines), file=sys.stderr)
    return process.returncode


def _write_report(options: argparse.Namespace) -> int:
    """Write report.html in one step; the old one stays where this fails."""
    PART.unlink(missing_ok=True)
    code = _snakemake(
        ["--profile", options.profile, "--report", str(PART), "--report-stylesheet", str(STYLE)]
        + _config_arguments(options),
        held_back=True,
    )
    if code == 0:
        PART.replace(REPORT)
    return code


def _fail(message: str, code: int) -> int:
    print(f"feedrate: {message}", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
