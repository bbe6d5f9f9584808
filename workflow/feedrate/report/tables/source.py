"""What the source of a study prints, what follows from its own table, and what was measured."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from msgspec.structs import asdict

from feedrate.config.study import Published
from feedrate.report import text
from feedrate.report.study import ClaimRow, RunRow, StudyResults
from feedrate.report.table import Column, Field, Table, Wide, Words, rate
from feedrate.results.claims import NO_DATA
from feedrate.results.comparability import Compared, compare, in_the_way, short_epochs

MARKS = {"holds": "✓", "refuted": "✗"}
OF = {
    "source": "Claims of the source",
    "advice": "Advice of the source",
    "ours": "Our own questions",
}


class Statement(NamedTuple):
    """A row: a claim or a published number."""

    name: Words
    printed: Words
    recomputed: Words
    measured: Words
    verdict: Words


def rows(study: StudyResults) -> list[object]:
    """The source's claims, its numbers, why sizes cannot be compared, and our own questions."""
    groups = text.grouped(study.claims, lambda claim: claim.of)
    theirs = [row for of in ("source", "advice") for row in _claims(study, of, groups.get(of, []))]
    ours = _claims(study, "ours", groups.get("ours", []))
    return [*theirs, *_rates(study), *_devices(study), *_benchmarks(study), *ours]


# Claims


def _claims(study: StudyResults, of: str, claims: Sequence[ClaimRow]) -> list[object]:
    """Claims with a measurement, the claim of the first screen, and those that the source's own
    table contradicts; the others are counted."""
    if not claims:
        return []
    shown, others = list[ClaimRow](), list[ClaimRow]()
    for claim in claims:
        wanted = claim.claim == study.study.claim or claim.published_verdict == "not"
        (shown if claim.verdict != NO_DATA or wanted else others).append(claim)
    rows: list[object] = [OF[of], *(_claim(study, claim) for claim in shown)]
    if others:
        known = [c for c in others if c.published_verdict and c.published_value]
        checked = f"{len(known)} ratios agree with the source's own table" if known else ""
        words = Field(_needs(study, others), [checked], word=True)
        rows.append(Wide(text.counted(len(others), "more claim"), words))
    return rows


def _needs(study: StudyResults, claims: Sequence[ClaimRow]) -> str:
    """What claims without data need: devices that were not measured, or cells of the others."""
    devices = dict.fromkeys(name for claim in claims for name in claim.device.split(";"))
    missing = [study.label(name) for name in devices if name not in study.devices]
    return f"need {text.listed(missing)}" if missing else "need cells that have no number here"


def _claim(study: StudyResults, claim: ClaimRow) -> Statement:
    agrees = {"consistent": "agrees", "not": "does not agree"}.get(claim.published_verdict, "")
    compared = f"{claim.metric} of {claim.expression}" if claim.metric else claim.expression
    device = study.label(claim.device) if claim.measured is not None else ""
    interval = ""
    if claim.ci_low is not None and claim.ci_high != claim.ci_low:
        interval = f"{claim.ci_low:.2f} to {claim.ci_high:.2f}"
    verdict = f"{MARKS.get(claim.verdict, '')} {claim.verdict}".strip()
    return Statement(
        Field(claim.statement, code=compared),
        text.ratio(claim.published_value),
        Field(text.ratio(claim.recomputed_from_published), [agrees]),
        Field(text.ratio(claim.measured), [interval, device], claim.compared),
        Field(verdict, [claim.why], claim.compared),
    )


# Published rates


def _rates(study: StudyResults) -> Iterator[object]:
    """The published rates of each device: beside ours where it was measured, else in one row."""
    by_device = text.grouped(study.published.values(), lambda row: row.device)
    if by_device:
        yield "Published rates (samples/s)"
    for device, published in by_device.items():
        if device in study.devices:
            yield from (_rate(study, row) for row in published)
            continue
        values = (f"{text.exact(row.value)} with {_levels(study, row)}" for row in published)
        yield Wide(_device(study, published[0]), Field("; ".join(values), [_about(published)]))


def _rate(study: StudyResults, row: Published) -> Statement:
    cell = study.cell(row.device, {**study.study.baseline, **row.levels})
    name = Field(f"{study.label(row.device)}, {_levels(study, row)}", [_about([row])])
    printed = text.exact(row.value)
    if cell is None or cell.samples_per_s is None:
        why = text.state(cell.status, cell.cause) if cell else "not measured"
        return Statement(name, printed, text.DASH, Field(why, word=True), "")
    run = next(run for run in study.runs_of(cell) if run.status == "ok")
    facts = asdict(run)
    wrong = in_the_way(compare(row, facts, study.plan.sources), "rate")
    reasons = [*short_epochs(facts, "samples_per_s"), *_differences(wrong)]
    verdict = Field("not comparable", ["; ".join(reasons)]) if reasons else ""
    times = "" if reasons else text.change(cell.samples_per_s / row.value)
    return Statement(name, printed, text.DASH, rate(cell), verdict or f"{times} against the source")


def _levels(study: StudyResults, row: Published) -> str:
    """The levels of a published number that differ from the baseline, and that of `along`."""
    base = study.study.baseline
    kept = {k: v for k, v in row.levels.items() if k == study.along or v != base[k]}
    return text.levels_text(kept or base)


def _device(study: StudyResults, row: Published) -> str:
    return f"{study.label(row.device)}, {text.counted(row.count, 'device')}"


def _about(rows: Sequence[Published]) -> str:
    """The editions, the software and the batches of numbers."""
    batches = (f"batch {row.batch_size}" if row.batch_size else "batch not stated" for row in rows)
    words = [row.edition for row in rows], [row.software for row in rows], batches
    return ", ".join(filter(None, dict.fromkeys(word for group in words for word in group)))


# Why sizes cannot be compared


def _devices(study: StudyResults) -> Iterator[Wide]:
    """For each measured device: what is not as in the published runs."""
    for device in study.devices:
        runs = [run for run in study.runs if run.device == device and run.status == "ok"]
        known = [row for row in study.published.values() if row.device == device]
        numbers = known or [*study.published.values()]
        if runs and numbers:
            wrong = [
                item for row in numbers for item in in_the_way(_compare(study, row, runs), "rate")
            ]
            if wrong:
                sentence = f"Sizes cannot be compared: {'; '.join(_differences(wrong))}."
                yield Wide(Field(study.label(device), of=runs[:1]), sentence)


def _compare(study: StudyResults, row: Published, runs: Sequence[RunRow]) -> list[Compared]:
    """A published number compared with the run that has the most of its levels."""
    wanted = {**study.study.baseline, **row.levels}
    run = max(runs, key=lambda run: len(wanted.items() & run.levels.items()))
    return compare(row, asdict(run), study.plan.sources)


def _differences(items: Sequence[Compared]) -> list[str]:
    """`other device, model and data`, `the source does not state parallelism`."""
    by_outcome = text.grouped(items, lambda one: one.outcome)
    leads = {"different": "other", "not stated": "the source does not state"}
    return [
        f"{lead} {text.listed(dict.fromkeys(one.label for one in by_outcome[outcome]))}"
        for outcome, lead in leads.items()
        if outcome in by_outcome
    ]


# Scores of other models


def _benchmarks(study: StudyResults) -> Iterator[object]:
    project = study.plan.project
    scores = project.scores.get(study.name, [])
    for source, group in text.grouped(scores, lambda score: score.source).items():
        yield f"Winoground, text / image / group score: {source}"
        for one in group:
            values = f"{one.text_score:g} / {one.image_score:g} / {one.group_score:g}%"
            name = Field(", ".join(filter(None, (one.model, one.head))), [one.note])
            yield Statement(name, values, text.DASH, text.DASH, "")
    accuracies = project.accuracies.get(study.name, [])
    for heading, of in text.grouped(accuracies, lambda a: f"{a.benchmark}: {a.source}").items():
        yield f"Accuracy on {heading}"
        for result in of:
            name = Field(result.model, [result.note])
            yield Statement(
                name, f"{result.accuracy:g}%", text.DASH, text.DASH, "not measured here"
            )


TABLES = (
    Table(
        "source",
        "The source's numbers",
        "source",
        40,
        rows,
        [
            Column("Statement", "name"),
            Column("Printed", "printed", optional=True),
            Column("By its own table", "recomputed", optional=True),
            Column("Measured here", "measured", optional=True),
            Column("Verdict", "verdict"),
        ],
        align="last-text",
    ),
)
