"""`python -m feedrate compare`: which cells became slower or faster between two sets of results."""

import argparse
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from pathlib import Path

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from feedrate.cli.display import output, table
from feedrate.config.study import Thresholds
from feedrate.config.values import BETWEEN_LEVELS, cell_text, parse_levels, rate_text
from feedrate.core import paths
from feedrate.core.errors import UsageError, fail
from feedrate.report.text import counted
from feedrate.report.text import number as digits
from feedrate.results import comparison
from feedrate.results.comparison import Run, differences, read_results, read_runs, run_sets
from feedrate.results.files import COMPARISON, Row, with_levels, write_csv

STYLES = {
    comparison.SLOWER: "bold red",
    comparison.FASTER: "green",
    comparison.OTHER_STATUS: "bold",
}
MOST_CHANGES = 3
"""Number of changes that the list of sets names."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of this command."""
    for name in ("OLD", "NEW"):
        text = "a folder of results, or the identity of a run in runs/"
        parser.add_argument(name.lower(), metavar=name, nargs="?", help=text)
    text = "medians that differ by no more than this share count as equal; default: %(default)s"
    parser.add_argument(
        "--noise", type=share, metavar="SHARE", default=Thresholds().noise_share, help=text
    )
    text = (
        "exit with code 1 if a cell is slower by more than this share and beyond noise, or lost "
        "its rate, or if nothing could be compared"
    )
    parser.add_argument("--fail-slower", type=share, metavar="SHARE", help=text)
    parser.add_argument("--out", metavar="FILE.csv", type=Path, help="write the rows to this file")
    text = "what is printed: tables for a terminal, or Markdown for a page; default: %(default)s"
    parser.add_argument("--format", choices=("text", "markdown"), default="text", help=text)


def share(text: str) -> float:
    """A share from 0 to 1."""
    if not 0 <= (value := float(text)) <= 1:
        raise ValueError
    return value


def compare(options: argparse.Namespace) -> int:
    """Print the comparison, or without OLD and NEW the sets of runs; return the exit code."""
    if options.old is None:
        output().print(sets_table(list(run_sets(read_runs(Path(paths.RUNS))))))
        return 0
    if options.new is None:
        raise UsageError("compare needs OLD and NEW; without both, it lists the sets of runs")
    lines = Thresholds(noise_share=options.noise)
    before, after = map(read_results, (options.old, options.new))
    rows = comparison.compare(before, after, lines)
    if options.out:
        levels = (parse_levels(row["cell"], BETWEEN_LEVELS) for row in rows)
        write_csv(options.out, with_levels(COMPARISON, levels), rows)
    sides = f"Before: {options.old}, {_times(before)}\nAfter: {options.new}, {_times(after)}"
    parts: list[str | Table] = [sides, *tables(rows, lines)]
    counts = Counter(row["change"] for row in rows)
    listed = ", ".join(f"{counts[word]} {word}" for word in comparison.CHANGES if counts[word])
    summary = f"{counted(len(rows), 'cell')}: {listed}."
    if options.format == "markdown":  # the summary first
        print("\n\n".join(markdown(part) for part in (summary, *parts)))
    else:
        for part in (*parts, summary):
            is_text = isinstance(part, str)
            output().print(Text(f"{part}\n") if is_text else part, soft_wrap=is_text)
    if options.fail_slower is None:
        return 0
    if all(row["ratio"] is None for row in rows):
        return fail("feedrate", "no cell has a rate before and after: nothing was compared")
    if slowed := comparison.slowed(rows, options.fail_slower):
        names = "; ".join(f"{row['study']} {row['device']} {row['cell']}" for row in slowed)
        text = f"slower by more than {options.fail_slower:.4g}, or without a rate now: {names}"
        return fail("feedrate", text)
    return 0


def tables(rows: Sequence[Row], lines: Thresholds) -> Iterator[Table]:
    """What else differs, and the cells of each study."""
    devices: dict[tuple[str, ...], dict[str, None]] = defaultdict(dict)
    for row in rows:
        for name, values in row["changes"].items():
            if name.split()[0] not in comparison.WORK:
                devices[name, *values][row["device"]] = None
    if devices:
        heads = ("what", "before", "after", "devices")
        facts = (map(Text, (*fact, ", ".join(names))) for fact, names in devices.items())
        yield table("What else differs", heads, facts, wrapped=heads)
    interval = f"joint {lines.confidence:.0%} interval"
    columns = ("device", "cell", "before", "after", "ratio", interval, "change", "")
    for study, group in groupby(rows, key=itemgetter("study")):
        cells = ((row["device"], cell_text(row["cell"]), *_values(row)) for row in group)
        yield table(study, columns, cells, left=("device", "cell", "change"), wrapped=("",))


def markdown(part: str | Table) -> str:
    """A part of the report in Markdown, as a paragraph or a table with its title."""
    if isinstance(part, str):
        return part.replace("\n", "  \n")
    names = [str(column.header) for column in part.columns]
    cells = zip(*(column.cells for column in part.columns), strict=True)
    texts = [[str(cell).replace("|", "\\|").replace("\n", " ") for cell in row] for row in cells]
    lines = (f"| {' | '.join(line)} |" for line in (names, ["---"] * len(names), *texts))
    return "\n".join((f"**{part.title}**", "", *lines))


def _times(runs: Iterable[Run]) -> str:
    """How many runs were started, and when."""
    started = sorted(run["started_at"] for run in runs if run["started_at"])
    first, last = (started[i][:16].replace("T", " ") if started else "" for i in (0, -1))
    return f"{counted(len(started), 'run')} from {first} to {last} UTC"


def _values(row: Row) -> Iterator[RenderableType]:
    """The rates, their ratio, its interval, the change, and remarks on the ratio or the reason why
    there is none."""
    for side in ("before", "after"):
        rate = row[f"samples_per_s_{side}"]
        yield Text(row[f"status_{side}"], "bold red") if rate is None else rate_text(rate)
    change = Text(row["change"], STYLES.get(row["change"], ""))
    if row["ratio"] is None:
        yield from ("", "", change, Text(row["cause"]))
        return
    low, high = row["ratio_ci_low"], row["ratio_ci_high"]
    yield digits(row["ratio"], 4)
    yield "" if low is None else f"{digits(low, 4)} to {digits(high, 4)}"
    yield change
    remarks = []
    if other := [word for word in row["differs"].split(";") if word in comparison.WORK]:
        remarks.append(f"different {' and '.join(other)}")
    if min(row["ok_runs_before"], row["ok_runs_after"]) == 1:
        remarks.append("single run")
    if row["same_runs"]:
        remarks.append(counted(row["same_runs"], "same run"))
    yield Text(", ".join(remarks))


def sets_table(sets: Sequence[Sequence[Run]]) -> Table:
    """The sets in runs/: what to type, their runs, and what differs from the set before."""
    rows = []
    for number, runs in enumerate(sets):
        counts = Counter(f"{run['study']} {run['device']}" for run in runs)
        numbers = ", ".join(f"{name}: {count}" for name, count in sorted(counts.items()))
        earlier = (other for other in sets[number + 1 :] if _cells(other) & _cells(runs))
        changes, commit = _changes(next(earlier, []), runs), runs[0].get("commit", "")[:8]
        rows.append((runs[0]["name"], _times(runs), numbers, commit, changes))
    columns = ("identity", "measured", "runs", "commit", "other than before")
    return table("Sets of runs", columns, rows, left=columns, wrapped=(columns[2], columns[-1]))


def _cells(runs: Iterable[Run]) -> set[tuple[str, ...]]:
    return {(run["study"], run["device"], run["cell"]) for run in runs}


def _changes(before: Sequence[Run], after: Sequence[Run]) -> str:
    """What differs between two sets in a phrase; nothing if there is no set before."""
    both = _cells(before) & _cells(after)
    sides = ([run for run in side if _cells([run]) & both] for side in (before, after))
    changes: dict[str, None] = {}
    for name, (old, new) in differences(*sides).items():
        word = name.split()[0]
        if word != "commit":  # it has its own column
            changes[word if word in comparison.WORK else f"{name} {old} to {new}"] = None
    words = list(changes)
    return ", ".join(words[:MOST_CHANGES]) + (", …" if len(words) > MOST_CHANGES else "")
