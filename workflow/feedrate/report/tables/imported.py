"""Runs of others, next to what was measured here and published; and the files they came from."""

from feedrate.report import text
from feedrate.report.lines import level_key, published_rates
from feedrate.report.markup import Markup, el, join, row, small, table, word
from feedrate.report.params import PageSettings
from feedrate.report.rows import Inputs
from feedrate.results.record import Record

NEEDS = ("cells", "published", "imported")
ORDER = 55

HEADS = ("Run", "Samples/s, as reported", "Measured here", "Published", "Loss", "Status")
LONGEST = 90
"""Characters of a run's origin; imported.json has all of it."""
FILES = ("File", "Read as", "Remark")


def render(settings: PageSettings, inputs: Inputs) -> Markup:
    """A row for each imported run; then each file that was left out or read with a remark."""
    found = inputs.imported(settings.study)
    cells = {(c.device, level_key(c.levels)): c for c in inputs.cells(settings.study)}
    measured = {key: cell.samples_per_s for key, cell in cells.items()}
    published = {key: one.value for key, one in published_rates(settings).items()}
    rows = []
    for one in found.records:
        known = len(one.levels) == len(settings.factors)
        at = (one.device, level_key(one.levels)) if known else ("", "")
        rate, loss = one.trainer.samples_per_s, one.trainer.loss
        counted = rate if one.status == "ok" else None
        beside = [_beside(counted, numbers.get(at)) for numbers in (measured, published)]
        rows.append(
            row(_run(settings, one), text.number(rate), *beside, text.number(loss), _status(one))
        )
    remarks = [row(one.file, one.format or "not read", one.note) for one in found.files if one.note]
    files = [el("h3", "Files with a remark"), table(FILES, remarks, "texts")] if remarks else []
    return join(table(HEADS, rows, "last-text"), *files)


def _run(settings: PageSettings, one: Record) -> Markup:
    levels = text.levels_text(one.levels) or "levels not stated"
    missing = [settings.factor_label(n) for n in settings.factors if n not in one.levels]
    more = f"not stated: {text.listed(missing)}" if missing and one.levels else ""
    origin = f"imported from {one.provenance.imported_from}"
    origin = origin if len(origin) <= LONGEST else f"{origin[: LONGEST - 1]}…"
    return join(settings.label(one.device), small(levels), small(more), small(origin))


def _beside(rate: float | None, other: float | None) -> Markup:
    ratio = text.ratio(rate / other) if rate and other else ""
    return join(text.number(other), small(f"the run: {ratio}" if ratio else ""))


def _status(one: Record) -> Markup:
    checked = f"{sum(check.passed for check in one.checks)} of {len(one.checks)} checks passed"
    state = one.status if one.status == "ok" else text.STATUS_WORDS[one.status]
    shown = el("span", state) if one.status == "ok" else word(state)
    return join(shown, small(one.cause or checked))
