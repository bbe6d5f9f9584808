"""`python -m feedrate COMMAND`: run studies, plan them, tune loaders, compare results, cancel jobs.

Rules start their programs in the same way: `python -m feedrate JOB` (see cli/jobs.py).
"""

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from feedrate.cli import jobs
from feedrate.core.errors import fail

COMMANDS = {
    "run": "run the studies of config.yaml, write report.html and print a summary",
    "plan": "show what would run where, for how long and at what cost; start nothing",
    "tune": "measure the loaders of this machine and recommend one",
    "compare": "show which cells became slower or faster between two sets of results",
    "cancel": "cancel this project's jobs that a killed run left on Slurm",
}
"""The commands for people; each is a module in cli/."""


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
    for name, about in COMMANDS.items():
        command = commands.add_parser(name, help=about, description=about, allow_abbrev=False)
        if words[:1] == [name]:
            import_module(f"feedrate.cli.{name}").add_options(command)
    options, unknown = parser.parse_known_args(words)
    passed_on = [word for word in unknown if word != "--"]
    if wrong := _error(options, passed_on):
        return fail("feedrate", wrong, 2)
    code: int = import_module(f"feedrate.cli.{options.command}").run(options, passed_on)
    return code


def _error(options: argparse.Namespace, passed_on: list[str]) -> str:
    """Why the command cannot start; empty if it can."""
    if not Path("Snakefile").is_file():
        return "run this in the project's root folder (there is no Snakefile here)"
    for file in getattr(options, "configfile", ()):
        if not Path(file).is_file():
            return f"--configfile {file}: there is no such file"
    if not passed_on:
        return ""
    from feedrate.cli.snakemake import wrong_option

    return wrong_option(passed_on)


if __name__ == "__main__":
    sys.exit(main())
