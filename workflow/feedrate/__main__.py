"""`python -m feedrate COMMAND`: run studies, plan them, tune loaders, compare results, cancel jobs.

Rules start their programs in the same way: `python -m feedrate JOB` (see cli/jobs.py).
"""

import argparse
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from feedrate.cli import jobs
from feedrate.core.errors import UsageError


class Command(NamedTuple):
    """A command for people: two functions in cli/, each as MODULE:NAME, and a description."""

    add_options: str
    run: str
    about: str


COMMANDS = {
    "run": Command(
        "run:add_run_options",
        "run:run",
        "Run the studies of config.yaml, write report.html and print a summary.",
    ),
    "plan": Command(
        "run:add_choices",
        "plan:plan",
        "Show what would run where, for how long and at what cost. Starts nothing.",
    ),
    "tune": Command(
        "run:add_choices",
        "run:tune",
        "Measure the loaders and the model on this machine and recommend a loader.",
    ),
    "compare": Command(
        "compare:add_options",
        "compare:compare",
        "Show which cells became slower or faster between two sets of results.",
    ),
    "cancel": Command(
        "run:add_cancel_options",
        "run:cancel",
        "Cancel this project's jobs that a killed run left on Slurm.",
    ),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words and words[0] in jobs.JOBS:
        return jobs.run(words[0], words[1:])
    parser = argparse.ArgumentParser(
        prog="python -m feedrate",
        description="Measure how fast an accelerator can be fed and trained.",
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, command in COMMANDS.items():
        about = command.about
        added = commands.add_parser(name, help=about, description=about, allow_abbrev=False)
        if words[:1] == [name]:
            _function(command.add_options)(added)
    options, others = parser.parse_known_args(words)
    return jobs.exit_code("feedrate", lambda: _run(options, others), vars(options))


def _run(options: argparse.Namespace, others: Sequence[str]) -> int:
    """Run a command; one that starts Snakemake passes `others` to it."""
    if not Path("Snakefile").is_file():
        raise UsageError("run this in the project's root folder (there is no Snakefile here)")
    run = _function(COMMANDS[options.command].run)
    if "profile" in options:
        return run(options, [word for word in others if word != "--"])
    if others:
        raise UsageError(f"unknown: {' '.join(others)}")
    return run(options)


def _function(place: str) -> Callable[..., Any]:
    module, _, name = place.partition(":")
    function: Callable[..., Any] = getattr(import_module(f"feedrate.cli.{module}"), name)
    return function


if __name__ == "__main__":
    sys.exit(main())
