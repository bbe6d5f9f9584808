"""`python -m feedrate.report.render --settings … --out FILE INPUTS`: renders a table or figure.

Its kind is the name of a file in `tables/` or `figures/`, whose `render` makes the page. INPUTS are
result files such as results/cells.csv.
"""

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from feedrate.config.errors import ConfigError
from feedrate.core import plugins
from feedrate.core.errors import fail
from feedrate.core.files import write_text
from feedrate.report.params import PageSettings, from_param
from feedrate.report.rows import Inputs

T = TypeVar("T")


def render(settings: PageSettings, inputs: Inputs) -> str:
    """A table as HTML or a figure as SVG. Raises ConfigError where an input is missing or wrong."""
    kind = plugins.load(f"feedrate.report.{settings.part}s", settings.kind)
    return str(kind.render(settings, inputs))


def write_page(
    program: str,
    kind: type[T],
    make: Callable[[T, Inputs], str],
    arguments: Sequence[str] | None = None,
) -> int:
    """Read the command line of `program`, write the page that `make` returns, give the exit code.

    `--settings` holds a `kind` as `params.to_param` wrote it; inputs are recognised by file name.
    """
    parser = argparse.ArgumentParser(prog=program)
    parser.add_argument("--settings", required=True, help="a mapping, as Snakemake prints it")
    parser.add_argument("--out", required=True, type=Path, help="file to write")
    parser.add_argument("inputs", nargs="*", type=Path, help="results/cells.csv and the like")
    options = parser.parse_args(arguments)
    try:
        settings = from_param(options.settings, kind)
        write_text(options.out, make(settings, Inputs(options.inputs)))
    except (ConfigError, OSError) as error:
        return fail(program, error)
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; the exit code."""
    return write_page("feedrate.report.render", PageSettings, render, arguments)


if __name__ == "__main__":
    sys.exit(main())
