"""What the source of a study prints, what follows from its own table, and what was measured."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from msgspec.structs import asdict

from feedrate.config.study import Published
from feedrate.report import text
from feedrate.report.study import ClaimRow, RunRow, StudyResults
from feedrate.report.table import Column, Field, Table, Wide, Words, rate
from feedrate.results.claims import NO_DATA, NOT_COMPARABLE
from feedrate.results.comparability import Compared, compare, in_the_way

MARKS = {"holds": "✓ holds", "refuted": "✗ refuted"}
AGREES = {"consistent": "agrees", "not": "does not agree"}
HEADINGS = {
    "source": "Claims of the source",
    "advice": "Advice of the source",
    "ours": "Our own questions",
}


class Statement(NamedTuple):
    """A claim, or a published number."""

    name: Field
    printed: Words = text.DASH
    recomputed: Words = text.DASH
    measured: Words = text.DASH
    verdict: Words = text.DASH


def rows(study: StudyResults) -> list[Any]:
    """The source's claims and numbers, why sizes cannot be compared, and our own questions."""
    rows = [row for of in ("source", "advice") for row in _claims(study, of)]
    rows += [*_rates(study), *_devices(study), *_benchmarks(study)]
    return [*rows, *_claims(study, "ours")]


def _claims(study: StudyResults, of: str) -> Iterator[Any]:
    """Claims with a measurement, the claim of the first screen, and those that the source's own
    table contradicts; one row for the others."""
    claims, others = [claim for claim in study.claims if claim.of == of], list[ClaimRow]()
    if claims:
        yield HEADINGS[of]
    for claim in claims:
        needed = claim.claim == study.study.claim or claim.published_verdict == "not"
        if claim.verdict != NO_DATA or needed:
            yield _claim(study, claim)
        else:
            others.append(claim)
    if others:
        devices = dict.fromkeys(name for claim in others for name in claim.device.split(";"))
        missing = [study.label(name) for name in devices if name not in study.devices]
        needs = text.listed(missing) if missing else "settings that have no number here"
        known = sum(claim.published_value is not None for claim in others)
        agree = f"its own table agrees with {text.counted(known, 'printed ratio')}" if known else ""
        name = text.counted(len(others), "more claim" if of != "ours" else "more question")
        yield Wide(Field(name), Field(f"no data here: needs {needs}", [agree]))


def _claim(study: StudyResults, claim: ClaimRow) -> Statement:
    compared = f"{claim.metric} of {claim.expression}" if claim.metric else claim.expression
    low, high = claim.ci_low, claim.ci_high
    interval = f" ({low:.2f} to {high:.2f})" if low is not None and low != high else ""
    device = study.label(claim.device) if claim.measured is not None else ""
    why = claim.why if claim.verdict in (NO_DATA, NOT_COMPARABLE) else ""
    if claim.margin is not None:
        why = f"it may miss the claim by {text.share(claim.margin)}"
    return Statement(
        Field(claim.statement, code=compared),
        text.ratio(claim.published_value),
        Field(
            text.ratio(claim.recomputed_from_published), [AGREES.get(claim.published_verdict, "")]
        ),
        Field(text.ratio(claim.measured) + interval, [device], claim.compared),
        Field(MARKS.get(claim.verdict, claim.verdict), [why], claim.compared),
    )


# Published rates


def _rates(study: StudyResults) -> Iterator[Any]:
    """The published rates of each device: beside ours where it was measured, else in one row."""
    groups = text.grouped(study.published.values(), lambda row: row.device)
    if groups:
        yield "Published rates (samples/s)"
    for device, published in groups.items():
        if device in study.devices:
            yield from (_rate(study, row) for row in published)
            continue
        values = (f"{text.exact(row.value)} ({_levels(study, row)})" for row in published)
        name = f"{study.label(device)}, {text.counted(published[0].count, 'device')}"
        yield Wide(Field(name), Field(", ".join(values), [_about(*published)]))


def _rate(study: StudyResults, row: Published) -> Statement:
    """A published rate beside ours, with their ratio or what is in its way."""
    cell = study.cell(row.device, {**study.study.baseline, **row.levels})
    name = Field(f"{study.label(row.device)}, {_levels(study, row)}", [_about(row)])
    printed = text.exact(row.value)
    if cell is None or cell.samples_per_s is None:
        why = text.state(cell.status, cell.cause) if cell else "not measured"
        return Statement(name, printed, measured=Field(why, word=True))
    runs = [run for run in study.runs_of(cell) if run.status == "ok"]
    verdict = _differences(_in_the_way(study, row, runs))
    if cell.short_epochs:
        verdict = f"{verdict}; too few steps per epoch here"
    ratio = f"{text.change(cell.samples_per_s / row.value)} against the source"
    return Statement(name, printed, measured=rate(cell), verdict=verdict.strip("; ") or ratio)


def _levels(study: StudyResults, row: Published) -> str:
    """The levels of a published number that differ from the baseline, and that of `along`."""
    base = study.study.baseline
    return text.levels_text(
        {k: v for k, v in row.levels.items() if k == study.along or v != base[k]}
    )


def _about(*rows: Published) -> str:
    """The editions, the software and the batches of numbers."""
    words = (
        (row.edition, row.software, f"batch {row.batch_size}" if row.batch_size else "")
        for row in rows
    )
    return ", ".join(filter(None, dict.fromkeys(word for group in words for word in group)))


# Why sizes cannot be compared


def _devices(study: StudyResults) -> Iterator[Wide]:
    """For each measured device: what is not as in the published runs, of its own or of all."""
    for device in study.devices:
        runs = [run for run in study.runs if run.device == device and run.status == "ok"]
        numbers = [row for row in study.published.values() if row.device == device]
        numbers = numbers or [*study.published.values()]
        items = [item for row in numbers for item in _in_the_way(study, row, runs)]
        if items:
            words = f"Sizes cannot be compared: {_differences(items)}"
            yield Wide(Field(study.label(device), of=runs[:1]), Field(words))


def _in_the_way(study: StudyResults, row: Published, runs: Sequence[RunRow]) -> list[Compared]:
    """What is in the way of comparing a rate with that of the run with most of its levels."""
    wanted = {**study.study.baseline, **row.levels}
    best = max(runs, key=lambda run: len(wanted.items() & run.levels.items()), default=None)
    return in_the_way(compare(row, asdict(best), study.plan.sources), "rate") if best else []


def _differences(items: Sequence[Compared]) -> str:
    """`other device, model and data; the source does not state parallelism`."""
    other = dict.fromkeys(item.label for item in items if item.outcome == "different")
    unsaid = dict.fromkeys(item.label for item in items if item.label not in other)
    parts = {"other": other, "the source does not state": unsaid}
    return "; ".join(f"{lead} {text.listed(labels)}" for lead, labels in parts.items() if labels)


# Scores of other models


def _benchmarks(study: StudyResults) -> Iterator[Any]:
    project = study.plan.project
    scores = text.grouped(project.scores.get(study.name, []), lambda score: score.source)
    for source, group in scores.items():
        yield f"Winoground (text, image and group score): {source}"
        for one in group:
            name = Field(", ".join(filter(None, (one.model, one.head))), [one.note])
            values = f"{one.text_score:g}, {one.image_score:g}, {one.group_score:g}%"
            yield Statement(name, values)
    for other in project.accuracies.get(study.name, []):
        name = Field(f"{other.model}, accuracy on {other.benchmark}", [other.note])
        yield Statement(name, f"{other.accuracy:g}%", verdict="not measured here")


def _columns(_: StudyResults) -> list[Column]:
    return [
        Column("Statement", "name"),
        Column("Printed", "printed", optional=True),
        Column("By its own table", "recomputed", optional=True),
        Column("Measured here", "measured", optional=True),
        Column("Verdict", "verdict", optional=True),
    ]


TABLES = (Table("source", "The source", "source", 40, rows, _columns, align="last-text"),)
