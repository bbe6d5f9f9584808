"""`python -m feedrate.results.confirm`: the exit code of the whole, after the report's pages.

It ends with 1, and a short list, where a run failed, a check rejected its numbers, or a model that
was kept could not be scored. Out of memory and unsupported cells are results, not failures.
"""

import argparse
import sys
from pathlib import Path

from feedrate.core.errors import fail
from feedrate.core.files import write_text
from feedrate.results.columns import QUALITY, RUNS
from feedrate.results.record import BAD
from feedrate.results.tables import Row, read_rows

LISTED = 20


def problems(rows: list[Row], doing: str = "") -> list[str]:
    """A line for each failed or invalid run: where it is, in `doing` what, and why."""
    return [
        f"{row['study']} {row['device']} {row['cell']} rep {row['repeat']}: {doing}"
        f"{row['status']}: {row['cause']}"
        for row in rows
        if row["status"] in BAD
    ]


def main(arguments: list[str] | None = None) -> int:
    """0 and the file `--out` where all is well; 1 and a list where it is not."""
    parser = argparse.ArgumentParser(prog="feedrate.results.confirm", description=__doc__)
    parser.add_argument("--results", type=Path, required=True, help="results.csv")
    parser.add_argument(
        "--quality", type=Path, nargs="*", default=[], help="quality.csv of studies"
    )
    parser.add_argument("--out", type=Path, required=True, help="written where nothing failed")
    options = parser.parse_args(arguments)
    try:
        rows = read_rows(options.results, RUNS)
        scores = [row for file in options.quality for row in read_rows(file, QUALITY)]
    except (OSError, ValueError) as error:
        return fail(parser.prog, error)
    tried = sum(row["status"] != "unsupported" for row in rows)
    runs, scorings = problems(rows), problems(scores, "scoring ")
    if lines := runs + scorings:
        more = [f"… and {len(lines) - LISTED} more"] if len(lines) > LISTED else []
        said = [f"{len(runs)} of {tried} runs did not end well"] if runs else []
        said += (
            [f"{len(scorings)} model{'s' * (len(scorings) > 1)} could not be scored"]
            if scorings
            else []
        )
        first = (
            f"{' and '.join(said)}; the report shows them, and the same command tries failed ones "
            "again:"
        )
        return fail(parser.prog, "\n  ".join([first, *lines[:LISTED], *more]))
    try:
        write_text(options.out, f"{tried} runs, none failed\n")
    except OSError as error:
        return fail(parser.prog, error)
    return 0


if __name__ == "__main__":
    sys.exit(main())
