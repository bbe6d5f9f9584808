"""Snakemake as a child process: its options, the check of a call, how it is started and stopped."""

import argparse
import contextlib
import io
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from feedrate.cli.jobs import STOPPED
from feedrate.config.plan import make_plan
from feedrate.config.project import Project
from feedrate.core.errors import UsageError
from feedrate.core.files import check_project
from feedrate.core.processes import die_with_parent, stop_signals
from feedrate.flow import configuration
from feedrate.flow.graph import Graph

TWICE_WITHIN_S = 2.0
"""A stop signal that follows the first one so soon is a copy of it. Snakemake ends with a traceback
if it is interrupted again while it handles the first one."""


def add_choices(parser: argparse.ArgumentParser) -> None:
    """Add the options that select a profile and override keys of config.yaml."""
    parser.add_argument("--profile", default="profiles/local", help="default: %(default)s")
    parser.add_argument("--study", action="append", help="a file in config/studies; repeatable")
    text = "an entry of devices.yaml, or `detected` for those of this machine; repeatable"
    parser.add_argument("--device", action="append", help=text)
    parser.add_argument("--dataset", help="an entry of `datasets` in config.yaml")
    several: dict[str, Any] = {"nargs": "+", "default": [], "action": "extend"}
    text = "YAML file that overrides keys of config.yaml"
    parser.add_argument("--configfile", "--configfiles", metavar="FILE", help=text, **several)
    text = "keys of config.yaml in Snakemake's syntax; repeatable"
    parser.add_argument("--config", "-C", metavar="KEY=VALUE", help=text, **several)
    parser.epilog = "All other options (for example --retries 2) and targets go to Snakemake."


def assignments(options: argparse.Namespace) -> list[str]:
    """The choices as KEY=VALUE of --config."""
    words = []
    if options.study:
        words.append(f"studies=[{','.join(options.study)}]")
    if options.device:
        words.append(f"devices=[{','.join(options.device)}]")
    if options.dataset:
        words.append(f"dataset={options.dataset}")
    return [*words, *options.config]


def layers_of(options: argparse.Namespace) -> configuration.Layers:
    """The configuration of a call, file by file. Raises ConfigError."""
    _, files = configuration.read_profile(options.profile)
    return configuration.read_layers([*files, *map(Path, options.configfile)], assignments(options))


def load_project(options: argparse.Namespace) -> Project:
    """The project of a call. Raises ConfigError."""
    return configuration.load(Path(), layers_of(options))


def load_graph(options: argparse.Namespace) -> Graph:
    """The plan of a call, and what of it exists now. Raises ConfigError."""
    return Graph(load_project(options), Path().resolve())


def is_local(options: argparse.Namespace, snakemake: argparse.Namespace | None = None) -> bool:
    """Whether jobs run on this host: by the profile, unless options of Snakemake name it."""
    executor, _ = configuration.read_profile(options.profile)
    return (getattr(snakemake, "executor", None) or executor) in ("", "local")


def check_call(options: argparse.Namespace, words: Sequence[str]) -> argparse.Namespace:
    """Check a call before Snakemake starts; return what Snakemake reads in `words`. Raises
    ConfigError, and UsageError for an option or a value in `words` that Snakemake refuses."""
    check_configuration(options, words)
    if not words:
        return argparse.Namespace(dryrun=False, quiet=None, targets=None)
    from snakemake.cli import parse_args  # slow
    from snakemake.exceptions import CliException, WorkflowError

    errors = io.StringIO()
    try:
        with contextlib.redirect_stderr(errors):
            snakemake: argparse.Namespace = parse_args(list(words))[1]
    except SystemExit:
        raise UsageError(errors.getvalue().rpartition(": error: ")[2].strip()) from None
    except (CliException, WorkflowError, ValueError) as error:
        raise UsageError(f"an option of Snakemake, in {shlex.join(words)}: {error}") from None
    return snakemake


def check_configuration(options: argparse.Namespace, targets: Iterable[str]) -> Project:
    """The project of a call, checked but for the files outside of config/: Snakemake checks them,
    which knows where jobs run. Raises ConfigError."""
    layers = layers_of(options)
    project = configuration.load(Path(), layers)
    configuration.check_targets(Path(), project, layers, targets)
    make_plan(project)
    return project


def snakemake_arguments(options: argparse.Namespace, *words: str) -> list[str]:
    """The profile, `words` and the choices, which come last: --config takes all that follows."""
    arguments = ["--profile", options.profile, *words]
    if options.configfile:
        arguments += ["--configfile", *options.configfile]
    if values := assignments(options):
        arguments += ["--config", *values]
    return arguments


def run_snakemake(options: argparse.Namespace, *words: str, held_back: bool = False) -> int:
    """Run Snakemake in its own process group; return the exit code. Ctrl-C, or a signal to this
    process, interrupts it with all its jobs; it ends too if this process is killed. With
    `held_back`, its messages are shown only if it fails. Raises ExpectedError if it could not even
    keep its log."""
    check_project(Path())
    process = subprocess.Popen(
        [sys.executable, "-m", "snakemake", *snakemake_arguments(options, *words)],
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE if held_back else None,
        text=True,
        process_group=0,
        preexec_fn=_begin_snakemake,
    )

    def interrupt() -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGINT)

    with on_stop_signal(interrupt) as signal_times_s:
        _, errors = process.communicate()
    if signal_times_s:
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
def on_stop_signal(act: Callable[[], None]) -> Iterator[list[float]]:
    """Call `act` when a stop signal comes; yield the times of such signals, s."""
    times_s: list[float] = []

    def obey(_number: int, _frame: object) -> None:
        now_s = time.monotonic()
        times_s.append(now_s)
        # A signal to make's process group comes twice: make passes it on.
        if len(times_s) == 1 or now_s - times_s[0] >= TWICE_WITHIN_S:
            act()

    previous = {number: signal.signal(number, obey) for number in stop_signals()}
    try:
        yield times_s
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
