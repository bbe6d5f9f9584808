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
from feedrate.results.comparison import Run, read_results, read_runs, run_sets
from feedrate.results.files import COMPARISON, Row, with_levels, write_csv

STYLES = {
    comparison.SLOWER: "bold red",
    comparison.FASTER: "green",
    comparison.OTHER_STATUS: "bold",
}


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of this command."""
    for name in ("OLD", "NEW"):
        text = "a folder of results, or the name of a set of runs"
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
    """A share from 0 to 1. Raises ValueError."""
    value = float(text)
    if not 0 <= value <= 1:
        raise ValueError
    return value


def compare(options: argparse.Namespace) -> int:
    """Print the comparison, or without OLD and NEW the sets of runs; return the exit code."""
    if options.old is None:
        output().print(sets_table(run_sets(read_runs(Path(paths.RUNS)))))
        return 0
    if options.new is None:
        raise UsageError("compare needs OLD and NEW; without both, it lists the sets of runs")
    thresholds = Thresholds(noise_share=options.noise)
    before, after = read_results(options.old), read_results(options.new)
    rows = comparison.compare(before, after, thresholds)
    if options.out:
        levels = (parse_levels(row["cell"], BETWEEN_LEVELS) for row in rows)
        write_csv(options.out, with_levels(COMPARISON, levels), rows)
    sides = (
        f"Before: {options.old}, {times_text(before)}\nAfter: {options.new}, {times_text(after)}"
    )
    parts = list(difference_tables(rows))
    interval = f"joint {thresholds.confidence:.0%} interval"
    columns = ("device", "cell", "before", "after", "ratio", interval, "change", "")
    for study, group in groupby(rows, key=itemgetter("study")):
        lines = map(cells_of, group)
        left = ("device", "cell", "change")
        parts.append(table(study, columns, lines, left=left, wrapped=("",)))
    counts = Counter(row["change"] for row in rows)
    changes = ", ".join(f"{counts[word]} {word}" for word in comparison.CHANGES if counts[word])
    summary = f"{counted(len(rows), 'cell')}: {changes}."
    if options.format == "markdown":
        print("\n\n".join([summary, sides.replace("\n", "  \n"), *map(markdown, parts)]))
    else:
        console = output()
        console.print(Text(f"{sides}\n"), soft_wrap=True)
        for part in parts:
            console.print(part)
        console.print(Text(f"{summary}\n"), soft_wrap=True)
    if options.fail_slower is None:
        return 0
    if all(row["ratio"] is None for row in rows):
        return fail("feedrate", "no cell has a rate before and after: nothing was compared")
    if slowed := comparison.slowed(rows, options.fail_slower):
        names = "; ".join(f"{row['study']} {row['device']} {row['cell']}" for row in slowed)
        text = f"slower by more than {options.fail_slower:.4g}, or without a rate now: {names}"
        return fail("feedrate", text)
    return 0


def difference_tables(rows: Sequence[Row]) -> Iterator[Table]:
    """A table of what else differs, with the devices concerned, if anything does."""
    devices: dict[tuple[str, ...], dict[str, None]] = defaultdict(dict)
    for row in rows:
        for name, (before, after) in row["changes"].items():
            if name.split()[0] not in comparison.WORK:
                devices[name, before, after][row["device"]] = None
    if devices:
        columns = ("what", "before", "after", "devices")
        lines = (map(Text, (*change, ", ".join(names))) for change, names in devices.items())
        yield table("What else differs", columns, lines, wrapped=columns)


def markdown(part: Table) -> str:
    """A table in Markdown, with its title."""
    header = [str(column.header) for column in part.columns]
    lines = [header, ["---"] * len(header)]
    for row in zip(*(column.cells for column in part.columns), strict=True):
        lines.append([str(cell).replace("|", "\\|").replace("\n", " ") for cell in row])
    return "\n".join([f"**{part.title}**", "", *(f"| {' | '.join(line)} |" for line in lines)])


def times_text(runs: Iterable[Run]) -> str:
    """How many runs were started, and when."""
    times = sorted(run["started_at"] for run in runs if run["started_at"])
    minutes = [time[:16].replace("T", " ") for time in times] or [""]
    return f"{counted(len(times), 'run')} from {minutes[0]} to {minutes[-1]} UTC"


def cells_of(row: Row) -> list[RenderableType]:
    """A line: the cell, its rates, their ratio, its interval, the change, and remarks on the ratio
    or the reason why there is none."""
    line: list[RenderableType] = [row["device"], cell_text(row["cell"])]
    for side in ("before", "after"):
        rate = row[f"samples_per_s_{side}"]
        line.append(Text(row[f"status_{side}"], "bold red") if rate is None else rate_text(rate))
    change = Text(row["change"], STYLES.get(row["change"], ""))
    if row["ratio"] is None:
        return [*line, "", "", change, Text(row["cause"])]
    remarks = []
    if work := [name for name in row["differs"].split(";") if name in comparison.WORK]:
        remarks.append(f"different {' and '.join(work)}")
    if min(row["ok_runs_before"], row["ok_runs_after"]) == 1:
        remarks.append("single run")
    if row["same_runs"]:
        remarks.append(counted(row["same_runs"], "same run"))
    low, high = row["ratio_ci_low"], row["ratio_ci_high"]
    interval = "" if low is None else f"{digits(low, 4)} to {digits(high, 4)}"
    return [*line, digits(row["ratio"], 4), interval, change, Text(", ".join(remarks))]


def sets_table(sets: Iterable[Sequence[Run]]) -> Table:
    """The sets in runs/: what to type, when they were measured, and their runs."""
    lines = []
    for runs in sets:
        counts = Counter(f"{run['study']} {run['device']}" for run in runs)
        numbers = ", ".join(f"{name}: {count}" for name, count in sorted(counts.items()))
        commit = runs[0].get("commit", "")[:8]
        lines.append((runs[0]["name"], times_text(runs), commit, numbers))
    columns = ("identity", "measured", "commit", "runs")
    return table("Sets of runs", columns, lines, left=columns, wrapped=("runs",))
