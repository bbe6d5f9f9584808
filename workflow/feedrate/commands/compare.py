"""`python -m feedrate compare`: what became slower or faster between two sets of results."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from feedrate.config.study import Thresholds

SLOWER = 1
"""Exit code where --fail-slower found what it looks for."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of this command."""
    usual = Thresholds()
    for name, what in (("OLD", "before"), ("NEW", "after")):
        parser.add_argument(
            name.lower(),
            metavar=name,
            type=Path,
            help=f"the results {what}: a folder of results, a clone that has one, or its "
            "results.csv or cells.csv",
        )
    parser.add_argument(
        "--noise",
        metavar="SHARE",
        type=_share,
        default=usual.noise_share,
        help="medians that are no further apart do not differ; default: %(default)s",
    )
    parser.add_argument(
        "--fail-slower",
        metavar="SHARE",
        type=_share,
        help=f"exit code {SLOWER} where a cell is slower by more than that, beyond noise, or has "
        "lost its rate, or where nothing could be compared",
    )
    parser.add_argument("--out", metavar="FILE.csv", type=Path, help="write the rows to this file")


def run(options: argparse.Namespace, passed_on: list[str]) -> int:
    """Print the comparison; the exit code."""
    if passed_on:
        return _fail(f"unknown: {' '.join(passed_on)}")
    from feedrate import changes  # heavy
    from feedrate.results import comparison
    from feedrate.results.tables import write_rows

    lines = Thresholds(noise_share=options.noise)
    try:
        before, after = map(comparison.read_results, (options.old, options.new))
        rows = comparison.compare(before, after, lines)
        if options.out:
            _refuse_to_lose(options.out, [before.path, after.path])
            write_rows(options.out, comparison.comparison_columns(rows), rows)
    except (OSError, ValueError) as error:
        return _fail(str(error))
    changes.show(rows, before, after, comparison.moved_between(before, after), lines)
    if options.fail_slower is None:
        return 0
    if not any(row["change"] in comparison.COMPARED for row in rows):
        return _fail("no cell has a rate before and after: nothing was compared", SLOWER)
    slowed = comparison.slowed(rows, options.fail_slower)
    return _fail(_named(slowed, options.fail_slower), SLOWER) if slowed else 0


def _share(text: str) -> float:
    """A share from 0 to 1."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not allowed; expected a share from 0 to 1")
    return value


def _refuse_to_lose(out: Path, files: Sequence[Path]) -> None:
    """Raise ValueError where `out` is one of the files that are compared."""
    if out.resolve() in [file.resolve() for file in files]:
        raise ValueError(f"--out {out}: not allowed; this file is being compared")


def _named(rows: Sequence[dict[str, Any]], share: float) -> str:
    names = (f"{row['study']} {row['device']} {row['cell']}" for row in rows)
    return f"slower by more than {share:.4g}, or without a rate now: {'; '.join(names)}"


def _fail(message: str, code: int = 2) -> int:
    print(f"feedrate: {message}", file=sys.stderr)
    return code
