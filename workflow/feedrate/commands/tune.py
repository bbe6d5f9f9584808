"""`python -m feedrate tune`: which loader settings to use on this machine, and what to expect."""

import argparse
import time
from pathlib import Path

from feedrate import paths, variables
from feedrate.commands.options import add_choices, config_arguments
from feedrate.commands.snakemake import run_snakemake


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of this command."""
    add_choices(parser)
    parser.epilog = "Other options go to Snakemake."


def run(options: argparse.Namespace, passed_on: list[str]) -> int:
    """Measure anew and print the advice of this call; the exit code."""
    started_s = time.time()
    arguments = ["--profile", options.profile, "tune", *passed_on, *config_arguments(options)]
    code = run_snakemake(arguments, environment={variables.ADVICE_LATER: f"{started_s}"})
    there = sorted(Path().glob(paths.ADVICE.format(device="*")))
    new = [advice for advice in there if advice.stat().st_mtime >= started_s]
    predictions = Path(paths.PREDICTIONS)
    for told in [*new, *[predictions] * (bool(new) and predictions.is_file())]:
        print(f"\n{told.read_text(encoding='utf-8').rstrip()}")
    return code
