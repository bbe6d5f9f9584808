"""The page of the sources, statement by statement: docs/sources.md, and a page of the report."""

import html
from collections.abc import Mapping
from fnmatch import fnmatchcase

from feedrate.config.statements import Document, Statement
from feedrate.config.values import BETWEEN_LEVELS
from feedrate.report import text
from feedrate.report.markup import el, group_row, join, link, noted, row, small, table
from feedrate.report.page import page
from feedrate.report.rows import ClaimRow, Inputs
from feedrate.results.claims import NO_DATA

TITLE = "The sources, statement by statement"
MARK = "<!-- generated from config/published/sources -->\n"
"""Everything after it in docs/sources.md is generated."""
HEADS = ("What it says", "Where it is here", "Command", "Status")
STATUSES = {
    "audited": "recomputed by check-claims",
    "cpu": "runs on any machine",
    "device": "ready",
    "not_reproducible": "not reproducible",
}
FILES = {
    **dict.fromkeys(("study", "claim", "level"), "../config/studies/{}.yaml"),
    "published": "../config/published/{}.csv",
    "table": "../workflow/feedrate/report/tables/{}.py",
    "figure": "../workflow/feedrate/report/figures/{}.py",
    "device": "../config/devices.yaml",
    "command": "../Makefile",
}
"""The file of a reference, from docs/."""

Outcomes = Mapping[str, list[str]]
"""What the results say, by reference: the verdicts on a claim, and the devices of the valid cells
of a study or level."""


def outcomes(inputs: Inputs, studies: list[str]) -> Outcomes:
    """The outcomes of some studies, from claims.csv and cells.csv."""
    found: dict[str, list[str]] = {}
    for study in studies:
        for claim in inputs.rows("claims.csv", ClaimRow, study):
            if claim.verdict != NO_DATA:
                found.setdefault(f"claim:{study}/{claim.claim}", []).append(claim.verdict)
        for cell in (one for one in inputs.cells(study) if one.status == "ok"):
            levels = (f"level:{study}/{level}" for level in cell.cell.split(BETWEEN_LEVELS))
            for name in (f"study:{study}", *levels):
                found.setdefault(name, []).append(cell.device)
    return found


def status(one: Statement, found: Outcomes) -> tuple[str, str]:
    """The status of a statement, and a remark. A claim's outcome goes before those of cells, and
    where a statement needs devices, only their cells count."""
    for kind in ("claim:", "level:", "study:"):
        names = [name for name in one.here if name.startswith(kind)]
        words = dict.fromkeys(
            word
            for key, told in found.items()
            if any(fnmatchcase(key, name) for name in names)
            for word in told
            if kind == "claim:" or not one.needs or {word, word.rpartition("-x")[0]} & {*one.needs}
        )
        if words:
            where = "measured here:" if kind == "claim:" else "measured on"
            return f"{where} {', '.join(words)}", one.why
    needs = f"needs {', '.join(one.needs)}" if one.needs else ""
    about = "to measure it, " if needs and one.status == "audited" else ""
    return STATUSES[one.status], ". ".join(filter(None, (about + needs, one.why)))


def markdown(documents: Mapping[str, Document]) -> str:
    """The generated part of docs/sources.md: a table for each section of each source."""

    def cell(*texts: str) -> str:
        return "<br>".join(html.escape(one, False) for one in texts if one).replace("|", "\\|")

    lines: list[str] = []
    for document in documents.values():
        title = f"[{document.title}]({document.address})" if document.address else document.title
        lines += [f"## {title}", ""]
        for section, rows in text.grouped(document.rows, lambda one: one.section).items():
            lines += [f"**{section}**", "", f"| {' | '.join(HEADS)} |", "|" + "---|" * len(HEADS)]
            for one in rows:
                places = cell(*(f"[`{name}`]({_file(name)})" for name in one.here))
                command = f"`{one.command}`" if one.command else ""
                told = cell(*status(one, {}))
                lines.append(f"| {cell(one.says)} | {places} | {command} | {told} |")
            lines.append("")
    return "\n".join(lines)


def _file(reference: str) -> str:
    kind, _, name = reference.partition(":")
    return FILES[kind].format(name.partition("/")[0])


def render(documents: Mapping[str, Document], found: Outcomes) -> str:
    """The same as a page of the report, with the outcomes of this run."""
    parts: list[str] = [el("h1", TITLE)]
    for document in documents.values():
        rows = []
        for section, group in text.grouped(document.rows, lambda one: one.section).items():
            rows.append(group_row(section, len(HEADS)))
            for one in group:
                told, remark = status(one, found)
                places = join(*(small(name) for name in one.here))
                command = el("code", one.command) if one.command else ""
                rows.append(row(one.says, places, command, noted(told, remark)))
        parts += [el("h2", link(document.title, document.address)), table(HEADS, rows, "texts")]
    return page(TITLE, *parts)
