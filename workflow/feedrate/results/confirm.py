"""The exit code of the whole workflow, after the report's pages.

It is 1, with a short list, where a run failed, a check rejected its numbers, or a kept model could
not be scored. Out-of-memory and unsupported cells are results, not failures.
"""

import argparse
import sys
from pathlib import Path

from feedrate.core.errors import fail
from feedrate.core.files import write_text
from feedrate.results.columns import QUALITY, RUNS
from feedrate.results.record import BAD
from feedrate.results.tables import Row, read_table

LISTED = 20


def problems(rows: list[Row], doing: str = "") -> list[str]:
    """A line for each failed or invalid run: where, what failed and why."""
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
        rows = read_table(options.results, RUNS)
        scores = [row for file in options.quality for row in read_table(file, QUALITY)]
        tried = sum(row["status"] != "unsupported" for row in rows)
        runs, scorings = problems(rows), problems(scores, "scoring ")
        if lines := runs + scorings:
            more = [f"… and {len(lines) - LISTED} more"] if len(lines) > LISTED else []
            counts = [f"{len(runs)} of {tried} runs did not end well"] if runs else []
            models = f"{len(scorings)} model{'s' * (len(scorings) > 1)}"
            counts += [f"{models} could not be scored"] if scorings else []
            first = (
                f"{' and '.join(counts)}; the report shows them, and the same command tries failed "
                "ones again:"
            )
            return fail(parser.prog, "\n  ".join([first, *lines[:LISTED], *more]))
        write_text(options.out, f"{tried} runs, none failed\n")
    except (OSError, ValueError) as error:
        return fail(parser.prog, error)
    return 0


if __name__ == "__main__":
    sys.exit(main())
