"""`python -m feedrate plan`: what would run where, how long and at what cost; nothing starts."""

import argparse
import tempfile
from pathlib import Path

from feedrate import detect, variables
from feedrate.commands.options import add_choices, config_arguments
from feedrate.commands.snakemake import run_snakemake
from feedrate.config.load import ConfigError
from feedrate.config.plan import load_project, make_plan
from feedrate.endings import fail
from feedrate.planning import dry_run
from feedrate.planning.forecast import forecast


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of this command."""
    add_choices(parser)
    parser.epilog = "Other options and targets go to Snakemake."


def run(options: argparse.Namespace, passed_on: list[str]) -> int:
    """Print the plan; the exit code."""
    with tempfile.TemporaryDirectory(prefix="feedrate-plan-") as folder:
        code = run_snakemake(
            # `host` is the least that there is to be quiet of: a profile's own would hide the jobs.
            [
                *("--profile", options.profile, *passed_on, "--dry-run"),
                *("--logger", "feedrate", "--quiet", "host", *config_arguments(options)),
            ],
            held_back=True,
            environment={variables.PLAN: folder},
        )
        if code:
            return code
        said = dry_run.read(Path(folder))
    try:
        project = load_project(Path(), said.configuration.config, detect.machine)
    except ConfigError as error:  # a file was edited meanwhile
        return fail("feedrate", error)
    from feedrate.planning.show import show  # heavy

    show(forecast(project, make_plan(project), said))
    return 0
