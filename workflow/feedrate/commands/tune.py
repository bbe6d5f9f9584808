"""`python -m feedrate tune`: which loader settings to use on this machine, and what to expect."""

import argparse
from pathlib import Path

from feedrate import paths, variables
from feedrate.commands.options import add_choices, config_arguments
from feedrate.commands.snakemake import run_snakemake


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of this command."""
    add_choices(parser)
    parser.epilog = "Other options go to Snakemake."


def run(options: argparse.Namespace, passed_on: list[str]) -> int:
    """Measure anew and print the advice; the exit code."""
    for old in Path().glob(paths.ADVICE.format(device="*")):
        old.unlink()
    arguments = ["--profile", options.profile, "tune", *passed_on, *config_arguments(options)]
    code = run_snakemake(arguments, environment={variables.ADVICE_LATER: "1"})
    for advice in sorted(Path().glob(paths.ADVICE.format(device="*"))):
        print(f"\n{advice.read_text(encoding='utf-8').rstrip()}")
    return code
