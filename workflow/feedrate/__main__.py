"""`python -m feedrate COMMAND`: run and plan studies, check the machine, count memory,
compare, archive and report results, delete old ones, cancel jobs.

Rules start their programs in the same way: `python -m feedrate JOB` (see cli/jobs.py).
"""

import argparse
import gc
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
    "doctor": "Show what this machine has, what each study lacks here, and what to do about it.",
    "selftest": "Show which capabilities of a device work on this machine, in a limited time.",
    "first-hour": "Measure the most informative cells in a limited time.",
    "fits": "Show which cells fit in memory, and the largest batches, without the device.",
    "compare": "Show which cells became slower or faster between two sets of results.",
    "archive": "Pack runs, configuration, results and report into one zip file, without secrets.",
    "report": "Make results, tables, figures and the page again from run folders.",
    "prune": "List folders of runs and data that no planned run uses, and delete them.",
    "cancel": "Cancel this project's jobs that a killed call left on a cluster.",
}
"""Each command is a module of cli/ with a function of the same name, which carries it out, and a
function `add_options`."""
PASS_ON = ("run", "plan", "selftest")
"""Commands that take the options of Snakemake too, as a second argument."""


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
            jobs.imported(f"cli.{name.replace('-', '_')}:add_options")(command)
    options, others = parser.parse_known_args(words)
    return jobs.exit_code("feedrate", lambda: _run(options, others), vars(options))


def _run(options: argparse.Namespace, others: list[str]) -> int:
    """Run a command; `others` are the words that it does not know."""
    if not Path("Snakefile").is_file():
        raise UsageError("run this in the project's root folder (there is no Snakefile here)")
    name = options.command.replace("-", "_")
    function = jobs.imported(f"cli.{name}:{name}")
    if options.command in PASS_ON:
        return int(function(options, [word for word in others if word != "--"]))
    if others:
        raise UsageError(f"unknown: {' '.join(others)}")
    return int(function(options))


if __name__ == "__main__":
    code = main()
    gc.freeze()  # or the collector looks at all objects of torch and transformers again: for 1.3 s
    sys.exit(code)
