"""Snakemake as a child of a command: one way to start it, to stop it, and to show what it says."""

import argparse
import contextlib
import io
import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from feedrate.config.errors import ConfigError
from feedrate.config.plan import make_plan
from feedrate.core.processes import die_with_parent
from feedrate.flow import configuration

STOPPED = 130
"""Exit code after Ctrl-C."""


def run_snakemake(
    arguments: Sequence[str],
    *,
    held_back: bool = False,
    environment: Mapping[str, str] | None = None,
) -> int:
    """Run Snakemake in this interpreter's environment, in a process group of its own.

    So Ctrl-C, or a signal to this process alone, reaches Snakemake and all its jobs in one way; and
    a killed command takes Snakemake with it. `held_back`: what Snakemake prints is shown after its
    end, and only where it fails. `environment` is set beside what this process has.
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
        print(_news(errors), file=sys.stderr)
    return process.returncode


def wrong_option(arguments: Sequence[str]) -> str:
    """What Snakemake would not take of `arguments`, before it starts; empty where it takes all."""
    if not arguments:
        return ""
    from snakemake.cli import parse_args  # heavy, and seldom needed

    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            parse_args(list(arguments))
    except SystemExit:
        return said.getvalue().rpartition(": error: ")[2].strip()
    return ""


def _news(errors: str) -> str:
    """What Snakemake says, without the line that every call begins with."""
    return "\n".join(line for line in errors.splitlines() if not line.startswith("Using profile"))


# Options that several commands share, and Snakemake's arguments that they stand for.


def add_choices(parser: argparse.ArgumentParser) -> None:
    """Which profile, and what of the configuration to lay over config.yaml."""
    parser.add_argument("--profile", default="profiles/local", help="default: %(default)s")
    parser.add_argument("--study", action="append", help="a file in config/studies; repeatable")
    parser.add_argument(
        "--device",
        action="append",
        help="an entry of devices.yaml, or `detected` for what this machine has; repeatable",
    )
    parser.add_argument("--dataset", help="one of `datasets` in config.yaml")
    parser.add_argument(
        "--configfile",
        "--configfiles",
        nargs="+",
        default=[],
        metavar="FILE",
        help="YAML that overrides keys of config.yaml",
    )
    parser.add_argument(
        "--config",
        "-C",
        nargs="+",
        action="extend",
        default=[],
        metavar="KEY=VALUE",
        help="keys of config.yaml, as Snakemake takes them; repeatable",
    )


def wrong_configuration(options: argparse.Namespace, targets: Iterable[str]) -> str:
    """What is wrong with the configuration of a call, found without starting Snakemake; empty if
    nothing is. Files outside config/ are left to Snakemake, which knows where jobs run."""
    try:
        profile = configuration.read_profile(options.profile)
        files = [*profile.files, *map(Path, options.configfile)]
        layers = configuration.read_layers(files, assignments(options))
        project = configuration.load(Path(), layers)
        configuration.check_targets(Path(), project, layers, targets)
        make_plan(project)
    except ConfigError as error:
        return str(error)
    return ""


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
