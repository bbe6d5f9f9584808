"""The end of a run on the terminal: what was measured, what failed, where the report is."""

import csv
from pathlib import Path

from rich.table import Table
from rich.text import Text

from feedrate import paths
from feedrate.config.base import BETWEEN_LEVELS, level_text
from feedrate.config.published import parse_levels
from feedrate.console import output, titled, varying
from feedrate.results.record import BAD


def show(report: Path | None) -> None:
    """Print a row per cell of the studies in the report, then its path, to stdout."""
    console = output()
    for study, rows in _by_study(Path(paths.of_all_studies(paths.CELLS_CSV))).items():
        shown = [row for row in rows if row["status"] != "unsupported"]
        console.print()
        console.print(_table(study, shown))
        if lacking := len(rows) - len(shown):
            console.print(f"and cells that a device does not support: {lacking}", style="dim")
    if report is not None:
        console.print()
        console.print(Text(f"The report: {report.resolve()}", "bold"), soft_wrap=True)


def _by_study(cells: Path) -> dict[str, list[dict[str, str]]]:
    """The rows of cells.csv by study; none where the workflow did not come so far."""
    studies: dict[str, list[dict[str, str]]] = {}
    if cells.is_file():
        with cells.open(newline="", encoding="utf-8") as stream:
            for row in csv.DictReader(stream):
                studies.setdefault(row["study"], []).append(row)
    return studies


def _table(study: str, rows: list[dict[str, str]]) -> Table:
    factors = varying([parse_levels(row["cell"], BETWEEN_LEVELS) for row in rows])
    table = titled(study)
    table.add_column("device", no_wrap=True)
    for name in (*factors, "samples/s", "95% interval", "data wait"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("limited by", no_wrap=True)
    table.add_column("")
    for row in rows:
        levels = parse_levels(row["cell"], BETWEEN_LEVELS)
        table.add_row(
            row["device"],
            *(level_text(levels[name]) for name in factors),
            _number(row["samples_per_s"], "{:.1f}"),
            _interval(row),
            _number(row["data_wait_share"], "{:.0%}"),
            row["verdict"] if row["status"] == "ok" else Text(row["status"], "bold red"),
            _remark(row),
        )
    return table


def _interval(row: dict[str, str]) -> str:
    if not row["ci_low"] or not row["ci_high"]:
        return ""
    return f"{float(row['ci_low']):.1f} to {float(row['ci_high']):.1f}"


def _remark(row: dict[str, str]) -> str:
    if row["status"] in BAD:
        return row["cause"]
    marks = [("recommended", "recommended"), ("noisy", "noisy")]
    return ", ".join(word for column, word in marks if row[column] in ("True", "true"))


def _number(text: str, pattern: str) -> str:
    return pattern.format(float(text)) if text else ""
