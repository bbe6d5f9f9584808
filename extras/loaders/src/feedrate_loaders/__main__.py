"""`python -m feedrate_loaders certify`: how many accelerators this machine can feed."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from feedrate.cli import jobs
from feedrate.core import processes
from feedrate.core.errors import UsageError
from feedrate_loaders import certify
from feedrate_loaders.feed import feed_accelerators


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command, or its job `worker`; return the exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    processes.keep_cores()
    if words[:1] == ["worker"]:
        job = "feedrate_loaders worker"
        given = vars(jobs.parser(job, feed_accelerators).parse_args(words[1:]))
        return jobs.exit_code(job, lambda: _feed(given), given)
    parser = argparse.ArgumentParser(prog="python -m feedrate_loaders")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    about = "Find how many accelerators this machine can feed, without having them."
    command = commands.add_parser("certify", help=about, description=about, allow_abbrev=False)
    certify.add_options(command)
    options, others = parser.parse_known_args(words)
    return jobs.exit_code("feedrate", lambda: _certify(options, others), vars(options))


def _feed(given: dict[str, Any]) -> int:
    feed_accelerators(**given)
    return 0


def _certify(options: argparse.Namespace, others: Sequence[str]) -> int:
    if not Path("Snakefile").is_file():
        raise UsageError("run this in the project's root folder (there is no Snakefile here)")
    return certify.certify(options, [word for word in others if word != "--"])


if __name__ == "__main__":
    sys.exit(main())
