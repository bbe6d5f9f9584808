"""The page of the sources, statement by statement: docs/sources.md, and a page of the report."""

import html
from collections import Counter
from collections.abc import Iterable, Mapping
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

NO_CELL, NO_RESULT = ("unsupported", "out_of_memory"), (NO_DATA, "failed", "invalid")
"""Statuses of cells that cannot be measured, and outcomes without a result."""

Outcomes = Mapping[str, list[tuple[list[str], str]]]
"""The results by reference: the devices of each claim or cell, and its verdict or status."""


def outcomes(inputs: Inputs, studies: list[str]) -> Outcomes:
    """The outcomes of some studies, from claims.csv and cells.csv."""
    found: dict[str, list[tuple[list[str], str]]] = {}
    for study in studies:
        for claim in inputs.rows("claims.csv", ClaimRow, study):
            result = claim.device.split(";"), claim.verdict
            found.setdefault(f"claim:{study}/{claim.claim}", []).append(result)
        for cell in (one for one in inputs.cells(study) if one.status not in NO_CELL):
            levels = (f"level:{study}/{level}" for level in cell.cell.split(BETWEEN_LEVELS))
            for name in (f"study:{study}", *levels):
                found.setdefault(name, []).append(([cell.device], cell.status))
    return found


def status(one: Statement, found: Outcomes) -> tuple[str, str]:
    """The status of a statement, and a remark. It is measured if all that its command measures has
    results, on all devices that it needs; if only a part has, the remark names the rest."""
    parts = {name: _results(name, one.needs, found) for name in one.measured}
    results = [names for part in parts.values() for names, word in part if word not in NO_RESULT]
    devices = dict.fromkeys(device for names in results for device in names)
    if not devices:
        needs = f"needs {', '.join(one.needs)}" if one.needs else ""
        about = "a measurement " if needs and one.status == "audited" else ""
        return STATUSES[one.status], ". ".join(filter(None, (about + needs, one.why)))
    lacking = [n for n, part in parts.items() if not part or any(w in NO_RESULT for _, w in part)]
    lacking += [name for name in one.needs if name not in _entries(devices, one.needs)]
    claims = [part for name, part in parts.items() if name.startswith("claim:")]
    verdicts = Counter(word for part in claims for _, word in part)
    words = ", ".join(word + f" ({count})" * (count > 1) for word, count in verdicts.items())
    state = f"{'partly ' * bool(lacking)}measured on {', '.join(devices)}{words and f': {words}'}"
    about = f"no complete result here for {', '.join(lacking)}" if lacking else ""
    return state, ". ".join(filter(None, (about, one.why)))


def _results(name: str, needs: list[str], found: Outcomes) -> list[tuple[list[str], str]]:
    """The outcomes of a reference; where a statement needs devices, only those on them."""
    known = (one for key, every in found.items() if fnmatchcase(key, name) for one in every)
    return [one for one in known if not needs or _entries(one[0], needs) <= {*needs}]


def _entries(devices: Iterable[str], needs: list[str]) -> set[str]:
    """The devices as a statement names them: it may need h100, and h100-x1 is a part of it."""
    return {one if one in needs else one.rpartition("-x")[0] for one in devices}


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
                state = cell(*status(one, {}))
                lines.append(f"| {cell(one.says)} | {places} | {command} | {state} |")
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
                state, remark = status(one, found)
                places = join(*(small(name) for name in one.here))
                command = el("code", one.command) if one.command else ""
                rows.append(row(one.says, places, command, noted(state, remark)))
        parts += [el("h2", link(document.title, document.address)), table(HEADS, rows, "texts")]
    return page(TITLE, *parts)
