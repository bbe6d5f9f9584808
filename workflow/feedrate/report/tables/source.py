"""What the source of a study prints, what follows from its own table, and what was measured; and
the audit of the source: its contradictions, then each number by edition."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from msgspec.structs import asdict

from feedrate.config.study import Published
from feedrate.report import text
from feedrate.report.audit import changes, claim_of, conditions, contradictions, published_mfu
from feedrate.report.rows import ClaimRow, RunRow, level_key, without
from feedrate.report.study import StudyResults
from feedrate.report.table import Column, Field, Table, rate, wide
from feedrate.results.answers import LIVE_MODEL
from feedrate.results.claims import HOLDS, NO_DATA, NOT_COMPARABLE, REFUTED
from feedrate.results.comparability import Compared, compare, in_the_way
from feedrate.results.expression import cell_levels, parse
from feedrate.results.statistics import RATE

MARKS = {HOLDS: "✓ ", REFUTED: "✗ "}
AGREES = {"consistent": "agrees", "not": "does not agree"}
HEADINGS = {"source": "Claims of the source", "advice": "Advice of the source"}


class Statement(NamedTuple):
    """A claim, or a published number."""

    name: Field
    printed: str
    recomputed: Field | str
    measured: Field
    verdict: Field | str


def rows(study: StudyResults) -> list[Any]:
    """The source's claims and numbers, why sizes cannot be compared, and our own questions."""
    rows: list[Any] = []
    for of, heading in HEADINGS.items():
        rows += _claims(study, of, heading)
    rows += [*_rates(study), *_devices(study), *_benchmarks(study)]
    return [*rows, *_claims(study, "ours", "Our own questions")]


def _claims(study: StudyResults, of: str, heading: str) -> Iterator[Any]:
    """Claims with a measurement, the claim of the first screen, and those that the source's own
    table contradicts; one row for the others."""
    claims, others = [claim for claim in study.claims if claim.of == of], list[ClaimRow]()
    if claims:
        yield heading
    for claim in claims:
        needed = claim.claim == study.study.claim or claim.published_verdict == "not"
        if claim.verdict != NO_DATA or needed:
            yield _claim(study, claim)
        else:
            others.append(claim)
    if others:
        devices = dict.fromkeys(name for claim in others for name in claim.device.split(";"))
        missing = [study.label(name) for name in devices if name not in study.devices]
        needs = text.listed(missing) if missing else "settings that did not run here"
        known = sum(bool(c.published_value and c.recomputed_from_published) for c in others)
        agree = f"its own table agrees with {text.counted(known, 'printed ratio')}" if known else ""
        yield wide(f"{len(others)} more", f"no data here: needs {needs}", agree)


def _claim(study: StudyResults, claim: ClaimRow) -> Statement:
    devices = text.listed(map(study.label, claim.device.split(";")))
    device = devices if claim.measured is not None else ""
    agrees = AGREES.get(claim.published_verdict, "")
    margin = claim_of(study, claim).margin(study.study.thresholds)
    is_judged = claim.measured is not None and claim.verdict != NOT_COMPARABLE
    tolerance = f"tolerance: {text.percent(margin)}%" if is_judged and margin else ""
    notes = [claim.why, tolerance, _basis(study, claim, devices)]
    return Statement(
        Field(claim.statement, [_compared(study, claim)]),
        text.ratio(claim.published_value),
        Field(text.ratio(claim.recomputed_from_published), [agrees]),
        Field(text.ratio(claim.measured, claim.ci_low, claim.ci_high), [device], claim.compared),
        Field(f"{MARKS.get(claim.verdict, '')}{claim.outcome}", notes, claim.compared),
    )


def _compared(study: StudyResults, claim: ClaimRow) -> str:
    """What a claim compares: `samples per second at size tiny: strategy ddp over strategy fsdp`."""
    ratio = parse(claim.expression, fits=not claim.metric)
    names = dict.fromkeys(name for ref in ratio for name, _ in ref.levels)
    above, below = (cell_levels(ref, names, study.study.baseline) for ref in ratio)
    same = {name: above[name] for name in names if above[name] == below[name]}
    labels = [study.label(ref.device) for ref in ratio] if len(ratio.devices) == 2 else ["", ""]
    differ = [study.words(without(levels, *same)) for levels in (above, below)]
    sides = [", ".join(filter(None, side)) for side in zip(labels, differ, strict=True)]
    words = claim.metric.removesuffix("_gib").replace("_per_s", " per second").replace("_", " ")
    measure = "share of the model alone" if claim.measure == LIVE_MODEL else words or "fits"
    measure = f"{measure} at {study.words(same)}" if same else measure
    return ": ".join(filter(None, [measure, " over ".join(filter(None, sides))]))


def _basis(study: StudyResults, claim: ClaimRow, devices: str) -> str:
    """On what a claim is refuted: `on CPU, 2 cores, 6 runs`."""
    runs = [run for cell in claim.compared for run in study.runs_of(cell) if run.started_at]
    if claim.verdict != REFUTED or not runs:
        return ""
    cores = min(run.cores_granted or 0 for run in runs)
    words = [f"on {devices}", text.counted(cores, "core") if cores else ""]
    return ", ".join(filter(None, [*words, text.counted(len(runs), "run")]))


# Published rates


def _rates(study: StudyResults) -> Iterator[Any]:
    """The published rates of each device: beside ours where it was measured, else in one row."""
    groups = text.grouped(study.published.values(), lambda row: row.device)
    if groups:
        yield "Published rates (samples/s)"
    for device, published in groups.items():
        first = published[0]
        name = f"{study.label(device)}, {text.counted(first.count, 'device')}"
        about = f"{first.edition}, {conditions(first)}"
        if device in study.devices:
            yield from (_rate(study, row, about) for row in published)
        else:
            values = (f"{text.exact(row.value)} ({_levels(study, row)})" for row in published)
            yield wide(name, ", ".join(values), about)


def _rate(study: StudyResults, row: Published, about: str) -> Statement:
    """A published rate beside ours, with their ratio or what is in its way."""
    name = Field(f"{study.label(row.device)}, {_levels(study, row)}", [about])
    cell, verdict = study.cell(row.device, {**study.study.baseline, **row.levels}), ""
    measured = Field("not measured", word=True)
    if cell is not None:
        measured = Field(text.state(cell.status, cell.cause), word=True)
    if cell is not None and cell.samples_per_s is not None:
        runs = [run for run in study.runs_of(cell) if run.status == "ok"]
        measured, verdict = rate(cell), _differences(_in_the_way(study, row, runs))
        if cell.short_epochs:
            verdict = f"{verdict}; too few steps per epoch here".lstrip("; ")
        verdict = verdict or f"{text.change(cell.samples_per_s / row.value)} against the source"
    return Statement(name, text.exact(row.value), text.DASH, measured, verdict)


def _levels(study: StudyResults, row: Published) -> str:
    """The levels of a published number that differ from the baseline, and that of `along`."""
    base, levels = study.study.baseline, row.levels.items()
    kept = {name: level for name, level in levels if name == study.along or level != base[name]}
    return text.levels_text(kept)


# Why sizes cannot be compared


def _devices(study: StudyResults) -> Iterator[Any]:
    """For each measured device: what is not as in the published runs, of its own or of all."""
    for device in study.devices:
        runs = [run for run in study.runs if run.device == device and run.status == "ok"]
        numbers = [row for row in study.published.values() if row.device == device]
        numbers = numbers or [*study.published.values()]
        items = [item for row in numbers for item in _in_the_way(study, row, runs)]
        if items:
            words = f"Sizes cannot be compared: {_differences(items)}"
            yield wide(Field(study.label(device), of=runs[:1]), words)


def _in_the_way(study: StudyResults, row: Published, runs: Sequence[RunRow]) -> list[Compared]:
    """What is in the way of comparing a rate with that of the run with most of its levels."""
    levels = {**study.study.baseline, **row.levels}
    best = max(runs, key=lambda run: len(levels.items() & run.levels.items()), default=None)
    return in_the_way(compare(row, asdict(best), study.plan), "rate") if best else []


def _differences(items: Sequence[Compared]) -> str:
    """`other device, model and data; the source does not state parallelism`."""
    other = {item.item: item.label for item in items if item.outcome == "different"}
    unsaid = {item.item: item.label for item in items if item.item not in other}
    if "device" in other:
        other.pop("devices", None)
    parts = {"other": other, "the source does not state": unsaid}
    return "; ".join(
        f"{lead} {text.listed(labels.values())}" for lead, labels in parts.items() if labels
    )


def _benchmarks(study: StudyResults) -> Iterator[Any]:
    """The published scores of other models, in a row for each benchmark and source."""
    project, models = study.plan.project, dict[tuple[str, str], list[str]]()
    for row in project.scores.get(study.name, []):
        name = f"{row.model} {row.head}".strip()
        words = f"{name} {row.text_score:g}, {row.image_score:g}, {row.group_score:g}%"
        models.setdefault(("Winoground: text, image, group", row.source), []).append(words)
    for result in project.accuracies.get(study.name, []):
        words = f"{result.model} {result.accuracy:g}%"
        models.setdefault((f"Accuracy on {result.benchmark}", result.source), []).append(words)
    for (heading, source), of_source in models.items():
        yield wide(heading, "; ".join(of_source), source)


def _columns(_: StudyResults) -> list[Column]:
    return [
        Column("Statement", "name"),
        Column("Printed", "printed", optional=True),
        Column("By its own table", "recomputed", optional=True),
        Column("Measured here", "measured", optional=True),
        Column("Verdict", "verdict"),
    ]


# The source, audited


class Number(NamedTuple):
    """A published number."""

    row: Published
    mfu: float | None
    change: float | None  # over the value of the edition before
    timed_s: float | None


def audited(study: StudyResults) -> list[Any]:
    """The contradictions and changes, then a group for each device and cell, by edition."""
    plan, order = study.plan, study.study.source.editions
    rows: list[Any] = [wide("Contradiction", words) for words in contradictions(plan)]
    rows += [wide("Changed", words) for words in changes(plan)]
    groups = text.grouped(
        plan.published, lambda row: (row.device, row.count, level_key(row.levels), row.metric)
    )
    for (device, count, _, metric), group in groups.items():
        group.sort(key=lambda row: order.index(row.edition) if row.edition in order else len(order))
        levels = text.levels_text(group[0].levels) or "settings not stated"
        name = f"{study.label(device)}, {text.counted(count, 'device')}: {levels}"
        rows.append(f"{name}, {metric}" if metric != RATE else name)
        before: float | None = None
        for row in group:
            timed_s = row.timed_samples / row.value if row.timed_samples else None
            change = row.value / before if before else None
            rows.append(Number(row, published_mfu(plan, row), change, timed_s))
            before = row.value
    return rows


def _audit_columns(_: StudyResults) -> list[Column]:
    return [
        Column("Edition", "row.edition"),
        Column("Value", lambda number: f"{text.exact(number.row.value)} {number.row.unit}"),
        Column("Against the edition before", "change", text.change, optional=True),
        Column("Timed", "timed_s", text.seconds, optional=True),
        Column("MFU", "mfu", text.share, optional=True),
        Column("Batch", "row.batch_size", text.integer, optional=True),
        Column("Software", "row.software", optional=True),
        Column("Source", "row", lambda row: Field(row.source, [row.protocol])),
    ]


TABLES = (
    Table("source", "The source", "source", 40, rows, _columns, align="last-text"),
    Table("audit", "The source, audited", "source", 41, audited, _audit_columns, align="texts"),
)
