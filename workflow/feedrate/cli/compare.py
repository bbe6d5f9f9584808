"""`python -m feedrate compare`: what became slower or faster between two sets of results."""

import argparse
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from feedrate.cli.console import output, titled, varying
from feedrate.config.study import Thresholds
from feedrate.config.values import BETWEEN_LEVELS, level_text, parse_levels
from feedrate.core.errors import UsageError, fail
from feedrate.results.comparison import (
    COMPARED,
    EQUAL,
    FASTER,
    NO_RATE,
    ONLY_AFTER,
    ONLY_BEFORE,
    OTHER_STATUS,
    SLOWER,
    SOFTWARE,
    WORK,
    Moved,
    Results,
    percent,
)


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
        help="medians no further apart than this share do not differ; default: %(default)s",
    )
    parser.add_argument(
        "--fail-slower",
        metavar="SHARE",
        type=_share,
        help="exit with code 1 if a cell is slower by more than this share and beyond noise, or "
        "lost its rate, or if nothing could be compared",
    )
    parser.add_argument("--out", metavar="FILE.csv", type=Path, help="write the rows to this file")


def run(options: argparse.Namespace) -> int:
    """Print the comparison; return the exit code."""
    from feedrate.results import comparison
    from feedrate.results.tables import write_csv

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
    show(rows, before, after, comparison.moved_between(before, after), lines)
    if options.fail_slower is None:
        return 0
    if not any(row["change"] in comparison.COMPARED for row in rows):
        return fail("feedrate", "no cell has a rate before and after: nothing was compared")
    slowed = comparison.slowed(rows, options.fail_slower)
    return fail("feedrate", _named(slowed, options.fail_slower)) if slowed else 0


def _share(text: str) -> float:
    """A share from 0 to 1."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not allowed; expected a share from 0 to 1")
    return value


def _named(rows: Sequence[dict[str, Any]], share: float) -> str:
    names = (f"{row['study']} {row['device']} {row['cell']}" for row in rows)
    return f"slower by more than {share:.4g}, or without a rate now: {'; '.join(names)}"


# What changed between two sets of results, on the terminal.

Row = dict[str, Any]

WORDS = {EQUAL: "no difference beyond noise"}
"""A change in words, where its name in the file is not enough."""
STYLES = {SLOWER: "bold red", FASTER: "green", OTHER_STATUS: "bold"}
SETTINGS = ("spec", *WORK)
"""What makes a cell's runs other ones: then its ratio is not an update's alone."""


def show(
    rows: Sequence[Row],
    before: Results,
    after: Results,
    moved: Sequence[Moved],
    lines: Thresholds,
) -> None:
    """Print what else differs, a table of cells for each study, and a summary, to stdout."""
    console = output()
    for word, results in (("Before", before), ("After", after)):
        console.print(Text(f"{word}: {_described(results)}"), soft_wrap=True)
    if moved:
        console.print()
        console.print(_moved(moved))
    for study, group in groupby(rows, key=itemgetter("study")):
        silent: Counter[str] = Counter()
        shown: list[Row] = []
        for row in group:
            if _is_silent(row):
                silent[row["status_after"] or row["status_before"]] += 1
            else:
                shown.append(row)
        console.print()
        if shown:
            console.print(_table(study, shown, lines.confidence))
        if silent:
            listed = ", ".join(f"{count} {status}" for status, count in silent.items())
            console.print(f"and cells of {study} with no rate at all: {listed}", style="dim")
    console.print()
    for line in sentences(rows, before, after, lines):
        console.print(Text(line), soft_wrap=True)


def sentences(
    rows: Sequence[Row], before: Results, after: Results, lines: Thresholds
) -> Iterator[str]:
    """The summary, and what the reader of a ratio should know."""
    counts = Counter(row["change"] for row in rows)
    compared = [row for row in rows if row["change"] in COMPARED]
    yield (
        f"{counts[SLOWER]} of {_counted(len(compared), 'cell')} slower, {counts[FASTER]} faster, "
        f"{counts[EQUAL]} without a difference beyond noise."
        if compared
        else "No cell has a rate before and after."
    )
    others = (
        (OTHER_STATUS, "with another status"),
        (ONLY_BEFORE, "only before"),
        (ONLY_AFTER, "only after"),
        (NO_RATE, "with no rate in either"),
    )
    if told := [f"{counts[change]} {words}" for change, words in others if counts[change]]:
        yield f"Not compared: {', '.join(told)}."
    if other := sum(any(_other(row)) for row in compared):
        yield (
            f"Spec, data or code of {_counted(other, 'cell')} differ: there the ratio is not that "
            "of an update alone."
        )
    if single := sum(row["ratio_ci_low"] is None for row in compared):
        yield (
            f"{_counted(single, 'cell')} with a single run before or after: one run alone cannot "
            f"tell noise, and medians more than {percent(lines.noise_share)} apart differ."
        )
    if same := sum(row["same_runs"] for row in rows):
        yield f"The same in both: {_counted(same, 'run')}, not made again."
    for word, results in (("before", before), ("after", after)):
        runs = results.started
        if lost := sum(run[SOFTWARE] is None for run in runs):
            yield (
                f"Packages of {lost} of {_counted(len(runs), 'run')} {word} are not known: "
                f"their records are not beside {results.path}."
            )


def _is_silent(row: Row) -> bool:
    """Whether a cell is counted and not listed: it never had a rate, and nothing became of it."""
    statuses = {row["status_before"], row["status_after"]} - {""}
    return row["change"] == NO_RATE or statuses == {"unsupported"}


def _described(results: Results) -> str:
    """The file, and when its runs were started."""
    times = sorted(run["started_at"] for run in results.started if run.get("started_at"))
    dated = f", started {_minute(times[0])} to {_minute(times[-1])} UTC" if times else ""
    return f"{results.path}, {_counted(len(results.started), 'run')}{dated}"


def _minute(time: str) -> str:
    return time[:16].replace("T", " ")


def _moved(moved: Iterable[Moved]) -> Table:
    table = titled("What else differs")
    for name in ("what", "before", "after", "devices"):
        table.add_column(name, overflow="fold")
    for fact in moved:
        values = (fact.what, fact.before, fact.after, ", ".join(fact.devices))
        table.add_row(*map(Text, values))
    return table


def _table(study: str, rows: Sequence[Row], confidence: float) -> Table:
    cells = [parse_levels(row["cell"], BETWEEN_LEVELS) for row in rows]
    factors = varying(cells)
    table = titled(study)
    table.add_column("device", no_wrap=True)
    for name in (*factors, "before", "after", "ratio", f"{confidence:.0%} interval"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("change", no_wrap=True)
    table.add_column("")
    for row, levels in zip(rows, cells, strict=True):
        table.add_row(
            row["device"],
            *(level_text(levels.get(name, "")) for name in factors),
            _side(row, "before"),
            _side(row, "after"),
            _ratio(row),
            _interval(row),
            Text(WORDS.get(row["change"]) or row["change"], STYLES.get(row["change"], "")),
            Text(", ".join(_remarks(row))),
        )
    return table


def _side(row: Row, side: str) -> RenderableType:
    """The rate before or after, in samples/s, or the status where there is none."""
    rate = row[f"samples_per_s_{side}"]
    return f"{rate:.4g}" if rate is not None else Text(row[f"status_{side}"], "bold red")


def _ratio(row: Row) -> str:
    return f"{row['ratio']:.3f}" if row["change"] in COMPARED else ""


def _interval(row: Row) -> str:
    low, high = row.get("ratio_ci_low"), row.get("ratio_ci_high")
    return "" if low is None or high is None else f"{low:.3f} to {high:.3f}"


def _other(row: Row) -> list[str]:
    return [word for word in row["differs"].split(";") if word in SETTINGS]


def _remarks(row: Row) -> Iterator[str]:
    """What to know beside a ratio, or why there is none."""
    if row["change"] not in COMPARED:
        yield row["why"]
        return
    if other := _other(row):
        yield f"other {' and '.join(other)}"
    if min(row["ok_runs_before"], row["ok_runs_after"]) == 1:
        yield "single run"
    if row["same_runs"]:
        yield _counted(row["same_runs"], "same run")


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
