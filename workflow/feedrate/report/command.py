"""The command line of the report's programs: settings, result files, and one page out."""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from feedrate.config.errors import ConfigError
from feedrate.core.errors import fail
from feedrate.report.rows import Inputs
from feedrate.report.settings import from_param

T = TypeVar("T")


def run(
    program: str,
    description: str | None,
    kind: type[T],
    write: Callable[[T, Inputs, Path], None],
    arguments: list[str] | None = None,
) -> int:
    """Read the command line of `program`, write the page, and return the exit code.

    `--settings` is what feedrate.report.settings made, `inputs` are recognised by their names.
    """
    parser = argparse.ArgumentParser(prog=program, description=description)
    parser.add_argument("--settings", required=True, help="a mapping, as Snakemake prints it")
    parser.add_argument("--out", required=True, type=Path, help="file to write")
    parser.add_argument("inputs", nargs="*", type=Path, help="results/cells.csv and the like")
    options = parser.parse_args(arguments)
    try:
        write(from_param(options.settings, kind), Inputs(options.inputs), options.out)
    except (ConfigError, OSError) as error:
        return fail(parser.prog, error)
    return 0
