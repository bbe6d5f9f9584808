"""Snakemake as a child process: its options, how it is started, stopped and shown."""

import argparse
import contextlib
import io
import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from feedrate.cli.jobs import STOPPED
from feedrate.config.plan import make_plan
from feedrate.core.errors import UsageError
from feedrate.core.processes import die_with_parent
from feedrate.flow import configuration


def run_snakemake(
    arguments: Sequence[str],
    *,
    held_back: bool = False,
    environment: Mapping[str, str] | None = None,
) -> int:
    """Run Snakemake with this interpreter, in its own process group; return the exit code.

    Ctrl-C, or a signal to this process, interrupts Snakemake and all its jobs. If this process is
    killed, Snakemake ends too. With `held_back`, Snakemake's messages are shown only after it has
    failed. `environment` is added to this process's variables.
    """
    process = subprocess.Popen(
        [sys.executable, "-m", "snakemake", *arguments],
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE if held_back else None,
        text=True,
        env={**os.environ, **(environment or {})},
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
        lines = errors.splitlines()
        news = [line for line in lines if not line.startswith("Using profile")]
        print("\n".join(news), file=sys.stderr)
    return process.returncode


def add_choices(parser: argparse.ArgumentParser) -> None:
    """Add the options that select a profile and override keys of config.yaml."""
    parser.add_argument("--profile", default="profiles/local", help="default: %(default)s")
    parser.add_argument("--study", action="append", help="a file in config/studies; repeatable")
    parser.add_argument(
        "--device",
        action="append",
        help="an entry of devices.yaml, or `detected` for the devices of this machine; repeatable",
    )
    parser.add_argument("--dataset", help="an entry of `datasets` in config.yaml")
    parser.add_argument(
        "--configfile",
        "--configfiles",
        nargs="+",
        default=[],
        metavar="FILE",
        help="YAML file that overrides keys of config.yaml",
    )
    parser.add_argument(
        "--config",
        "-C",
        nargs="+",
        action="extend",
        default=[],
        metavar="KEY=VALUE",
        help="keys of config.yaml in Snakemake's syntax; repeatable",
    )
    parser.epilog = "Snakemake gets all other options (for example --retries 2), and targets."


def check_configuration(options: argparse.Namespace, targets: Iterable[str]) -> None:
    """Check the configuration of a call before Snakemake starts. Raises ConfigError.

    Files outside config/ are left to Snakemake, which knows where jobs run.
    """
    profile = configuration.read_profile(options.profile)
    files = [*profile.files, *map(Path, options.configfile)]
    layers = configuration.read_layers(files, assignments(options))
    project = configuration.load(Path(), layers)
    configuration.check_targets(Path(), project, layers, targets)
    make_plan(project)


def assignments(options: argparse.Namespace) -> list[str]:
    """The choices as KEY=VALUE of --config."""
    values = [
        f"{key}=[{','.join(names)}]"
        for key, names in (("studies", options.study), ("devices", options.device))
        if names
    ]
    return [*values, *([f"dataset={options.dataset}"] if options.dataset else []), *options.config]


def config_arguments(options: argparse.Namespace) -> list[str]:
    """The choices as arguments of Snakemake; they come last, as --config takes all that follows."""
    arguments = {"--configfile": options.configfile, "--config": assignments(options)}
    return [word for flag, words in arguments.items() if words for word in (flag, *words)]


def check_options(others: Sequence[str]) -> argparse.Namespace:
    """What Snakemake reads in `others`, the words that it gets.

    Raises UsageError for an option that it does not have.
    """
    if not others:
        return argparse.Namespace(dryrun=False, quiet=None)
    from snakemake.cli import parse_args  # slow

    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            found: argparse.Namespace = parse_args(list(others))[1]
    except SystemExit:
        raise UsageError(said.getvalue().rpartition(": error: ")[2].strip()) from None
    return found
