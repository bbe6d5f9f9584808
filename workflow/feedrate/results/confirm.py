"""The exit code of the whole workflow, after the report's pages.

It is 1, with a short list, where a run failed, a check rejected its numbers, or a kept model could
not be scored. Out-of-memory and unsupported cells are results, not failures.
"""

from pathlib import Path

from feedrate.core.errors import ExpectedError
from feedrate.core.files import write_text
from feedrate.results.columns import QUALITY, RUNS
from feedrate.results.record import BAD
from feedrate.results.tables import Row, read_csv

LISTED = 20


def confirm_results(results: Path, out: Path, quality: list[Path] | None = None) -> None:
    """Write `out` if no run failed and every kept model was scored; fail with a list otherwise.

    `results` is results.csv of all studies, `quality` are the studies' quality.csv.
    """
    rows = read_csv(results, RUNS)
    scores = [row for file in quality or [] for row in read_csv(file, QUALITY)]
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
        raise ExpectedError("\n  ".join([first, *lines[:LISTED], *more]))
    write_text(out, f"{tried} runs, none failed\n")


def problems(rows: list[Row], doing: str = "") -> list[str]:
    """A line for each failed or invalid run: where, what failed and why."""
    return [
        f"{row['study']} {row['device']} {row['cell']} rep {row['repeat']}: {doing}"
        f"{row['status']}: {row['cause']}"
        for row in rows
        if row["status"] in BAD
    ]
