"""What the source of a study states: its numbers, its experiments and its claims, beside ours."""

from collections.abc import Iterator, Mapping, Sequence

from msgspec.structs import asdict

from feedrate.config.study import Published
from feedrate.config.values import Level, level_text
from feedrate.report import text
from feedrate.report.context import PageSettings
from feedrate.report.lines import (
    against,
    first_runs,
    level_key,
    missing_capabilities,
    published_rates,
)
from feedrate.report.rows import CellRow, ClaimRow, Inputs, RunRow
from feedrate.report.table import Column, Field, Row, Shown, Table, listed
from feedrate.results.comparability import NEEDS as KINDS_OF_NUMBERS
from feedrate.results.comparability import Compared, because, compare, in_the_way

KINDS = {"published": 50, "claims": 190, "comparability": 195}

MARKS = {"holds": "✓", "refuted": "✗"}
CONSISTENCY = {"consistent": "agrees", "not": "does not agree"}

Columns = list[dict[str, Level]]
Cells = dict[tuple[str, str], CellRow]
"""The measured cells by device and `level_key`."""


def published(settings: PageSettings, inputs: Inputs) -> Table:
    """Published rows, then measured rows, then their ratio where they can be compared."""
    wanted = settings.columns or [settings.baseline]
    columns = [{**settings.baseline, **levels} for levels in wanted]
    cells = {(c.device, level_key(c.levels)): c for c in inputs.cells(settings.study)}
    rows: list[Row | str] = [
        f"Published (samples/s): {settings.origin.title}",
        *_published(settings, columns),
        "Measured here (samples/s)",
        *(_measured(settings, cells, device, columns) for device in settings.measured),
        *_compared(settings, cells, first_runs(inputs.runs(settings.study)), columns),
    ]
    heads = listed(*map(text.levels_text, wanted), "Edition, software, batch")
    return Table("Device", heads, rows, "last-text")


def _published(settings: PageSettings, columns: Columns) -> Iterator[Row]:
    values = published_rates(settings)
    for device in dict.fromkeys(device for device, _ in values):
        numbers = []
        for levels in columns:
            found = values.get((device, level_key(levels)))
            missing = "/" if missing_capabilities(settings, device, levels) else text.DASH
            numbers.append(text.exact(found.value) if found else missing)
        mine = [entry for (name, _), entry in values.items() if name == device]
        known = ((e.edition, e.software, _batch(e.batch_size)) for e in mine)
        about = dict.fromkeys(", ".join(filter(None, one)) for one in known)
        yield Row(_name(settings, device, mine[0].count), [*numbers, "; ".join(about)])


def _measured(settings: PageSettings, cells: Cells, device: str, columns: Columns) -> Row:
    numbers = [_number(cells.get((device, level_key(levels)))) for levels in columns]
    batches = {c.batch_size for (name, _), c in cells.items() if name == device and c.batch_size}
    about = text.listed(_batch(batch) for batch in sorted(batches))
    return Row(_name(settings, device, settings.devices[device].count), [*numbers, about])


def _compared(
    settings: PageSettings, cells: Cells, runs: dict[tuple[str, str], RunRow], columns: Columns
) -> Iterator[Row]:
    """Measured over published rates of a device; where they are not comparable, why."""
    values, keys = published_rates(settings), list(map(level_key, columns))
    for device in settings.measured:
        ratios: list[Field] = []
        wrong: dict[str, None] = {}
        for at in ((device, key) for key in keys):
            both = at in values and at in runs and at in cells
            reasons = against(settings, values[at], runs[at], "rate") if both else []
            wrong |= dict.fromkeys(reasons)
            rate = cells[at].samples_per_s if both and not reasons else None
            ratio = text.ratio(rate / values[at].value if rate else None)
            ratios.append(Field(ratio, of=[cells[at]] if rate else ()))
        if wrong or any(ratio.text != text.DASH for ratio in ratios):
            name = f"{settings.label(device)}: measured / published"
            yield Row(name, [*ratios, because(wrong) if wrong else ""])


def _number(cell: CellRow | None) -> Field:
    if cell is None:
        return Field(text.STATUS_WORDS["absent"], word=True)
    if cell.samples_per_s is None:
        reason = "/" if cell.status == "unsupported" else text.STATUS_WORDS[cell.status]
        return Field(reason, word=True)
    marks = ["noisy" if cell.noisy else "", "short epochs" if cell.short_epochs else ""]
    interval = text.interval(cell.ci_low, cell.ci_high)
    return Field(text.number(cell.samples_per_s), [interval, *marks], [cell])


def _name(settings: PageSettings, device: str, count: int) -> Field:
    return Field(settings.label(device), [text.counted(count, "device")])


def _batch(size: int | None) -> str:
    return f"batch {size}" if size else "batch not stated"


def claims(settings: PageSettings, inputs: Inputs) -> Table | str:
    """The source's claims: as printed, by its own table, and measured here; then our own questions.
    Those with a measurement come first. Empty columns are left out."""
    found = inputs.rows("claims.csv", ClaimRow, settings.study)
    if not found:
        return "The study states no claims."
    found.sort(key=lambda claim: (claim.of == "ours", claim.measured is None))
    rows: list[Row | str] = []
    for heading, group in text.grouped(found, lambda claim: claim.heading).items():
        rows += [heading, *(Row(_claim(claim), claim) for claim in group)]

    def measured(claim: ClaimRow) -> Field:
        interval = text.ratio_interval(claim.ci_low, claim.ci_high)
        device = settings.label(claim.device) if claim.measured is not None else ""
        return Field(text.ratio(claim.measured), [interval, device], claim.compared)

    columns = [
        Column("Printed by the source", "published_value", text.ratio, optional=True),
        Column("Its own table", _recomputed, optional=True),
        Column("Measured here", measured, optional=True),
        Column("Verdict here", _verdict),
    ]
    return Table("Claim", columns, rows, "last-text")


def _claim(claim: ClaimRow) -> Field:
    compared = f"{claim.metric} of {claim.expression}" if claim.metric else claim.expression
    edition = claim.edition if claim.of != "ours" else ""
    return Field(claim.statement, code=text.with_remark(compared, edition))


def _recomputed(claim: ClaimRow) -> Field:
    agrees = CONSISTENCY.get(claim.published_verdict, "")
    return Field(text.ratio(claim.recomputed_from_published), [agrees])


def _verdict(claim: ClaimRow) -> Field:
    verdict = f"{MARKS.get(claim.verdict, '')} {claim.verdict}".strip()
    return Field(verdict, [claim.why], claim.compared)


def comparability(settings: PageSettings, inputs: Inputs) -> Table | str:
    """What the source states about each number that claims use, compared with our run of the most
    similar cell, on its device or, without runs there, on each. Numbers with the same items share a
    group."""
    good = (run for run in inputs.runs(settings.study) if run.status == "ok")
    runs = text.grouped(good, lambda run: run.device)
    groups: dict[tuple[str, tuple[Compared, ...]], list[tuple[Published, RunRow]]] = {}
    for number in (one for one in settings.published if one.headline):
        for device in [number.device] if number.device in runs else runs:
            run = _similar({**settings.baseline, **number.levels}, settings.baseline, runs[device])
            items = tuple(compare(number, asdict(run), settings.sources))
            groups.setdefault((device, items), []).append((number, run))
    rows: list[Row | str] = []
    for (device, items), pairs in groups.items():
        numbers, compared = zip(*pairs, strict=True)
        theirs, ours = (
            "; ".join(dict.fromkeys(text.levels_text(one.levels) for one in side))
            for side in (numbers, compared)
        )
        here = text.with_remark(settings.label(device), ours)
        rows.append(f"{settings.label(numbers[0].device)} ({theirs}), compared with {here}")
        for one in items:
            ruled_out = [kind for kind in KINDS_OF_NUMBERS if one in in_the_way(items, kind)]
            said, done = one.texts
            fields: list[Shown] = [Field(said, [one.where]), done, one.outcome]
            rows.append(Row(Field(one.label, of=compared), [*fields, ", ".join(ruled_out)]))
    if not rows:
        return "There is no published number, or no run to compare it with."
    return Table("Item", listed("The source", "Here", "Outcome", "Rules out"), rows, "texts")


def _similar(
    levels: Mapping[str, Level], baseline: Mapping[str, Level], runs: Sequence[RunRow]
) -> RunRow:
    """The run with the most of these levels; of several, the one most like the baseline."""

    def alike(run: RunRow, wanted: Mapping[str, Level]) -> int:
        return sum(
            level_text(level) == level_text(run.levels.get(name, ""))
            for name, level in wanted.items()
        )

    return max(runs, key=lambda run: (alike(run, levels), alike(run, baseline)))
