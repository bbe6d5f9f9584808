"""Runs of others, next to measured and published numbers; and the files they came from."""

from typing import Any

import msgspec

from feedrate.report import text
from feedrate.report.lines import level_key, published_rates
from feedrate.report.markup import Markup, anchor_of, el, join, noted, record_link, row, table, word
from feedrate.report.params import PageSettings
from feedrate.report.provenance import pack
from feedrate.report.rows import CellRow, Inputs, as_run
from feedrate.results.record import Record

NEEDS = ("cells", "published", "imported")
ORDER = 55

HEADS = ("Run", "Samples/s, as reported", "Measured here", "Published", "Loss", "Status")
LONGEST = 90
"""Characters of a run's origin; imported.json has all of it."""
FILES = ("File", "Read as", "Remark")


def render(settings: PageSettings, inputs: Inputs) -> Markup:
    """A row for each imported run, with its packed record; then each file with a remark."""
    found = inputs.imported(settings.study)
    cells = {(c.device, level_key(c.levels)): c for c in inputs.cells(settings.study)}
    published = {key: one.value for key, one in published_rates(settings).items()}
    documents = {anchor_of(as_run(one)): _documents(one) for one in found.records}
    first = {run.rpartition("/")[0]: run for run in reversed(documents)}
    packed, rows = f"{settings.study}-imported", []
    for run, one in zip(documents, found.records, strict=True):
        known = len(one.levels) == len(settings.factors)
        at = (one.device, level_key(one.levels)) if known else ("", "")
        rate, cell = one.trainer.samples_per_s, cells.get(at)
        counted = rate if one.status == "ok" else None
        checked = f"{sum(c.passed for c in one.checks)} of {len(one.checks)} checks passed"
        shown = el("span", "ok") if one.status == "ok" else word(text.STATUS_WORDS[one.status])
        fields = (
            text.number(rate),
            _other(counted, cell.samples_per_s if cell else None, cell),
            _other(counted, published.get(at)),
            text.number(one.trainer.loss),
            noted(shown, one.cause or checked),
        )
        of_cell = run.rpartition("/")[0]
        head = _run(settings, one, of_cell if first[of_cell] == run else "")
        rows.append(el("tr", head, *(el("td", f) for f in fields), id=run, data_in=packed))
    remarks = [row(one.file, one.format or "not read", one.note) for one in found.files if one.note]
    files = [el("h3", "Files with a remark"), table(FILES, remarks, "texts")] if remarks else []
    records = el("div", id=packed, data_packed=pack(documents), hidden="hidden")
    return join(table(HEADS, rows, "last-text"), records, *files)


def _documents(one: Record) -> dict[str, Any]:
    """Where an imported run was read, and its record."""
    unknown = "No line of its files has this number: docs/importing.md says how it was read."
    place, line = one.provenance.imported_from, one.made_from.line or unknown
    return {"Imported from": place, "Line": line, "Record": msgspec.to_builtins(one)}


def _run(settings: PageSettings, one: Record, of_cell: str) -> Markup:
    """The name of a run. That of a cell's first run is the target of links to all of the cell."""
    levels = text.levels_text(one.levels) or "levels not stated"
    missing = [settings.factor_label(n) for n in settings.factors if n not in one.levels]
    more = f"not stated: {text.listed(missing)}" if missing and one.levels else ""
    origin = f"imported from {one.provenance.imported_from}"
    origin = origin if len(origin) <= LONGEST else f"{origin[: LONGEST - 1]}…"
    name = record_link(f"{settings.label(one.device)}, run {one.repeat}", as_run(one), at="")
    return el("th", noted(name, levels, more, origin), scope="row", id=of_cell)


def _other(rate: float | None, other: float | None, cell: CellRow | None = None) -> Markup:
    """Another rate with the same levels, with the run's ratio to it."""
    ratio = text.ratio(rate / other) if rate and other else ""
    number = record_link(text.number(other), cell if other else None)
    return noted(number, f"run over this: {ratio}" if ratio else "")
