"""`python -m feedrate COMMAND`: run and plan studies, check the machine, count memory,
compare, archive and report results, delete old ones, cancel jobs.

Rules start their programs in the same way: `python -m feedrate JOB` (see cli/jobs.py).
"""

import argparse
import gc
import inspect
import sys
from collections.abc import Sequence
from pathlib import Path

from feedrate.cli import jobs
from feedrate.core import processes
from feedrate.core.errors import UsageError
from feedrate.core.files import settle_caches

COMMANDS = {
    "run": "Run the studies of config.yaml, write report.html and print a summary.",
    "plan": "Show how many runs are to do, for how long and at what cost. Starts nothing.",
    "doctor": "Say what this machine has, what each study would lack, and what to do about it.",
    "selftest": "Show, in a given time, which capabilities of a device work on this machine.",
    "first-hour": "Measure what tells most of this machine within some minutes, a line each.",
    "fits": "Show which cells fit in memory and the largest batches, without their devices.",
    "compare": "Show which cells became slower or faster between two sets of results.",
    "archive": "Pack runs, configuration, results and report into one zip file, without secrets.",
    "report": "Make results, tables, figures and the page again from run folders.",
    "prune": "List folders of runs and data that no planned run uses, and delete them.",
    "cancel": "Cancel this project's jobs that a killed run left on a cluster.",
}

FUNCTIONS = {
    "run": ("cli.run:add_run_options", "cli.run:run"),
    "plan": ("cli.plan:add_options", "cli.plan:plan"),
    "doctor": ("cli.snakemake:add_choices", "cli.doctor:doctor"),
    "selftest": ("cli.selftest:add_options", "cli.selftest:selftest"),
    "first-hour": ("cli.first_hour:add_options", "cli.first_hour:first_hour"),
    "fits": ("cli.fits:add_options", "cli.fits:fits"),
    "compare": ("cli.compare:add_options", "cli.compare:compare"),
    "archive": ("cli.archive:add_options", "cli.archive:archive"),
    "report": ("cli.report:add_options", "cli.report:report"),
    "prune": ("cli.prune:add_options", "cli.prune:prune"),
    "cancel": ("cli.run:add_cancel_options", "cli.run:cancel"),
}
"""The functions that add a command's options and carry it out, as MODULE:NAME in this package."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    settle_caches()
    processes.keep_cores()
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
            jobs.imported(FUNCTIONS[name][0])(command)
    options, others = parser.parse_known_args(words)
    return jobs.exit_code("feedrate", lambda: _run(options, others), vars(options))


def _run(options: argparse.Namespace, others: Sequence[str]) -> int:
    """Run a command; one that starts Snakemake takes `others`, which it passes on."""
    if not Path("Snakefile").is_file():
        raise UsageError("run this in the project's root folder (there is no Snakefile here)")
    run = jobs.imported(FUNCTIONS[options.command][1])
    if "profile" in options:
        others = [word for word in others if word != "--"]
    if "others" in inspect.signature(run).parameters:
        return int(run(options, others))
    if others:
        raise UsageError(f"unknown: {' '.join(others)}")
    return int(run(options))


if __name__ == "__main__":
    code = main()
    gc.freeze()  # or the collector looks at all objects of torch and transformers again: for 1.3 s
    sys.exit(code)
