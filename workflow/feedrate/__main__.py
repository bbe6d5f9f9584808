"""`python -m feedrate COMMAND`: run studies, plan them, tune a loader, compare, cancel jobs."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from feedrate.cli import cancel, compare, plan, run, tune
from feedrate.cli.snakemake import wrong_configuration, wrong_option
from feedrate.core.errors import fail

COMMANDS = {"run": run, "plan": plan, "tune": tune, "compare": compare, "cancel": cancel}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m feedrate", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, module in COMMANDS.items():
        about = (module.__doc__ or "").partition(": ")[2]
        command = commands.add_parser(name, help=about, description=about, allow_abbrev=False)
        module.add_options(command)
    options, unknown = parser.parse_known_args(arguments)
    passed_on = [word for word in unknown if word != "--"]
    if wrong := _what_is_wrong(options) or wrong_option(passed_on):
        return fail("feedrate", wrong, 2)
    if "profile" in options and (wrong := wrong_configuration(options, passed_on)):
        return fail("feedrate", wrong)
    return COMMANDS[options.command].run(options, passed_on)


def _what_is_wrong(options: argparse.Namespace) -> str:
    """What keeps any command from starting; empty where nothing does."""
    if not Path("Snakefile").is_file():
        return "run this in the project's root folder (there is no Snakefile here)"
    absent = [file for file in getattr(options, "configfile", ()) if not Path(file).is_file()]
    return f"--configfile {absent[0]}: there is no such file" if absent else ""


if __name__ == "__main__":
    sys.exit(main())
