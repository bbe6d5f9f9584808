"""`python -m feedrate compare`: which cells became slower or faster between two sets of results."""

import argparse
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from feedrate.cli.display import cells_table, output, table
from feedrate.config.study import Thresholds
from feedrate.core.errors import UsageError, fail
from feedrate.report.text import counted
from feedrate.results import comparison
from feedrate.results.files import Row, write_csv
from feedrate.results.statistics import rate_text

STYLES = {
    comparison.SLOWER: "bold red",
    comparison.FASTER: "green",
    comparison.OTHER_STATUS: "bold",
}
UNSUPPORTED = {"", "unsupported"}


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of this command."""
    for name, when in (("OLD", "before"), ("NEW", "after")):
        text = f"the results {when}: a folder of results, or one with a results/, or a results.csv"
        parser.add_argument(name.lower(), metavar=name, type=Path, help=text)
    share: dict[str, Any] = {"metavar": "SHARE", "type": _share}
    text = "medians that differ by no more than this share count as equal; default: %(default)s"
    parser.add_argument("--noise", default=Thresholds().noise_share, help=text, **share)
    text = (
        "exit with code 1 if a cell is slower by more than this share and beyond noise, or lost "
        "its rate, or if nothing could be compared"
    )
    parser.add_argument("--fail-slower", help=text, **share)
    parser.add_argument("--out", metavar="FILE.csv", type=Path, help="write the rows to this file")
    text = "what is printed: tables for a terminal, or Markdown for a page; default: %(default)s"
    parser.add_argument("--format", choices=("text", "markdown"), default="text", help=text)


def _share(text: str) -> float:
    """A share from 0 to 1."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not allowed; expected a share from 0 to 1")
    return value


def compare(options: argparse.Namespace) -> int:
    """Print the comparison; return the exit code."""
    lines = Thresholds(noise_share=options.noise)
    try:
        before, after = map(comparison.read_results, (options.old, options.new))
        rows = comparison.compare(before, after, lines)
        if options.out:
            if options.out.resolve() in [before.path.resolve(), after.path.resolve()]:
                raise UsageError(f"--out {options.out}: not allowed; this file is being compared")
            write_csv(options.out, comparison.comparison_columns(rows), rows)
    except (OSError, ValueError) as error:
        raise UsageError(f"{error}") from None
    parts = list(report(rows, before, after, lines))
    if options.format == "markdown":  # the summary first
        print("\n\n".join(markdown(part) for part in (parts[-1], *parts[:-1])))
    else:
        for part in parts:
            is_text = isinstance(part, str)
            output().print(Text(f"{part}\n") if is_text else part, soft_wrap=is_text)
    share = options.fail_slower
    if share is None:
        return 0
    if all(row["ratio"] is None for row in rows):
        return fail("feedrate", "no cell has a rate before and after: nothing was compared")
    if slowed := comparison.slowed(rows, share):
        names = "; ".join(f"{row['study']} {row['device']} {row['cell']}" for row in slowed)
        return fail("feedrate", f"slower by more than {share:.4g}, or without a rate now: {names}")
    return 0


def report(
    rows: Sequence[Row], before: comparison.Results, after: comparison.Results, lines: Thresholds
) -> Iterator[str | Table]:
    """The other differences, a table of cells for each study, and a summary."""
    yield f"Before: {_described(before)}\nAfter: {_described(after)}"
    if moved := comparison.moved_between(rows):
        columns = ("what", "before", "after", "devices")
        facts = (map(Text, fact) for fact in moved)
        yield table("What else differs", columns, facts, wrapped=columns)
    numbers = ("before", "after", "ratio", f"joint {lines.confidence:.0%} interval")
    for study, group in groupby(rows, key=itemgetter("study")):
        supported = [r for r in group if {r["status_before"], r["status_after"]} - UNSUPPORTED]
        if supported:
            yield cells_table(study, supported, numbers, "change", _values)
    yield "\n".join(sentences(rows, before, after, lines))


def markdown(part: str | Table) -> str:
    """A part of the report in Markdown, as a paragraph or a table with its title."""
    if isinstance(part, str):
        return part.replace("\n", "  \n")
    names = [str(column.header) for column in part.columns]
    cells = zip(*(column.cells for column in part.columns), strict=True)
    texts = [[str(cell).replace("|", "\\|").replace("\n", " ") for cell in row] for row in cells]
    lines = (f"| {' | '.join(line)} |" for line in (names, ["---"] * len(names), *texts))
    return "\n".join((f"**{part.title}**", "", *lines))


def _described(results: comparison.Results) -> str:
    """The file, and when its runs were started."""
    started = sorted(run["started_at"] for run in results.started if run.get("started_at"))
    dated = ""
    if started:
        first, last = (time[:16].replace("T", " ") for time in (started[0], started[-1]))
        dated = f", started {first} to {last} UTC"
    return f"{results.path}, {counted(len(results.started), 'run')}{dated}"


def _values(row: Row) -> Iterator[RenderableType]:
    """The rates, their ratio, its interval, the change, and remarks on the ratio or the reason why
    there is none."""
    for side in ("before", "after"):
        rate = row[f"samples_per_s_{side}"]
        yield Text(row[f"status_{side}"], "bold red") if rate is None else rate_text(rate)
    change = Text(row["change"], STYLES.get(row["change"], ""))
    if row["ratio"] is None:
        yield from ("", "", change, Text(row["why"]))
        return
    low, high = row["ratio_ci_low"], row["ratio_ci_high"]
    yield f"{row['ratio']:.3f}"
    yield "" if low is None else f"{low:.3f} to {high:.3f}"
    yield change
    remarks = []
    if other := [word for word in row["differs"].split(";") if word in comparison.WORK]:
        remarks.append(f"different {' and '.join(other)}")
    if min(row["ok_runs_before"], row["ok_runs_after"]) == 1:
        remarks.append("single run")
    if row["same_runs"]:
        remarks.append(counted(row["same_runs"], "same run"))
    yield Text(", ".join(remarks))


def sentences(
    rows: Sequence[Row], before: comparison.Results, after: comparison.Results, lines: Thresholds
) -> Iterator[str]:
    """The summary, and remarks that the reader of a ratio needs."""
    counts = Counter(row["change"] for row in rows)
    listed = ", ".join(f"{counts[word]} {word}" for word in comparison.CHANGES if counts[word])
    yield f"{counted(len(rows), 'cell')}: {listed}."
    if counts[comparison.OPEN]:
        yield "More repeats would tell the rest apart."
    if single := sum(row["ratio"] is not None and row["ratio_ci_low"] is None for row in rows):
        share = comparison.percent(lines.noise_share)
        yield (
            f"{counted(single, 'cell')} without a repeat anywhere on the device: single runs show "
            f"no noise, so rates more than {share} apart count as different."
        )
    if same := sum(row["same_runs"] for row in rows):
        yield f"In both sets: {counted(same, 'run')}, not repeated."
    for word, results in (("Before", before), ("After", after)):
        if lost := sum(run[comparison.SOFTWARE] is None for run in results.started):
            yield (
                f"{word}: the packages of {lost} of {counted(len(results.started), 'run')} are not "
                f"known, because their records are not in the folder of {results.path}."
            )
