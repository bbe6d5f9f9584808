"""What holds of a study's source: verdicts on its claims, and contradictions within it."""

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import NamedTuple

from feedrate.config.plan import published_settings
from feedrate.config.study import Claim, Published
from feedrate.report import text
from feedrate.report.html import Statement, sentence
from feedrate.report.rows import ClaimRow, level_key
from feedrate.report.study import StudyResults
from feedrate.results.claims import (
    CANNOT_TELL,
    COUNTED,
    NO_DATA,
    NOT_COMPARABLE,
    REFUTED,
    agrees,
    judge,
    published_of,
    recompute,
)
from feedrate.results.comparability import Compared, stated
from feedrate.results.expression import CellRef, Ratio, cell_levels, parse
from feedrate.results.statistics import RATE, Estimate
from feedrate.results.study_plan import StudyPlan


def published(study: StudyResults) -> list[Statement]:
    """The verdict on the claim that the first screen judges, those on the source's other claims,
    and its contradictions."""
    statements = []
    baseline = study.study.baseline
    # A claim is judged at each measured level of `within`; the source means the baseline's.
    row = min(
        (claim for claim in study.claims if claim.claim == study.study.claim),
        key=lambda row: any(study.study.baseline_of(c.levels) != baseline for c in row.compared),
        default=None,
    )
    if row:
        statements.append(_claim(study, row))
    others = [claim for claim in study.claims if claim.of != "ours" and claim is not row]
    if any(claim.verdict != NO_DATA for claim in others):
        statements.append(_other_claims(study, others))
    against, changed = contradictions(study.plan), changes(study.plan)
    if against or changed:
        words = sentence(
            "contradictions",
            count=len(against),
            drafts=sum(map(in_draft, against)),
            first=against[0] if against else "",
            changed=len(changed),
        )
        statements.append(Statement(words))
    if not statements and (study.study.published_scores or study.study.published_accuracies):
        statements.append(Statement(sentence("only_scores")))
    return statements


def _claim(study: StudyResults, row: ClaimRow) -> Statement:
    """The verdict on a claim, and what is in the way of comparing it."""
    facts = facts_of_claim(study, row)
    reasons = row.why.removeprefix("Not comparable: ").split("; ")
    items = list(dict.fromkeys(reason.partition(":")[0] for reason in reasons))
    words = sentence(
        "claim",
        row=row,
        facts=facts,
        differs=study.words(facts.differs),
        missing=[study.label(d) for d in row.device.split(";") if d not in study.devices],
        obstacles=items if row.verdict == NOT_COMPARABLE else [],
        by_levels=row.metric in COUNTED,
        margin=claim_of(study, row).margin(study.study.thresholds),
    )
    return Statement(words, row.compared)


def _other_claims(study: StudyResults, claims: Sequence[ClaimRow]) -> Statement:
    """How many claims hold, and those that go the other way here."""
    contrary = [claim for claim in claims if _is_contrary(study, claim)]
    words = sentence(
        "claims",
        counts=Counter(claim.outcome for claim in claims),
        contrary=[(claim.statement, _compared(study, claim)) for claim in contrary[:2]],
        more=len(contrary[2:]),
        comparable=all(claim.verdict != NOT_COMPARABLE for claim in contrary),
    )
    return Statement(words, [cell for claim in contrary for cell in claim.compared])


def _is_contrary(study: StudyResults, row: ClaimRow) -> bool:
    """Whether a claim's ratio is refuted here, or would be if it were comparable: of single runs,
    by their ratio alone."""
    if row.measured is None or row.verdict == CANNOT_TELL:
        return False
    low, high = row.ci_low or row.measured, row.ci_high or row.measured
    measured = Estimate(row.measured, low, high)
    return judge(claim_of(study, row), measured, study.study.thresholds) == REFUTED


def claim_of(study: StudyResults, row: ClaimRow) -> Claim:
    """The claim that a row is about."""
    return next(claim for claim in study.study.claims if claim.id == row.claim)


def _compared(study: StudyResults, row: ClaimRow) -> str:
    """What a claim compares, as measured: the rates of its two cells, or the ratio."""
    cells = [cell for key in row.compared if (cell := study.cell(key.device, key.levels))]
    if row.metric != RATE or len(cells) != 2:
        return f"{text.ratio(row.measured)}, where {text.ratio(row.published_value)} is claimed"
    devices = {cell.device for cell in cells}
    names = [
        study.label(cell.device) if len(devices) > 1 else study.setting_among(cell, cells)
        for cell in cells
    ]
    rates = [f"{n}: {text.number(c.samples_per_s)}" for n, c in zip(names, cells, strict=True)]
    return f"{', '.join(rates)} samples/s"


def contradictions(plan: StudyPlan) -> list[str]:
    """All contradictions of a study's source: one number for two settings, numbers of parameters
    that the model does not have, ratios that its own table contradicts, items of its sheets, and
    cells that differ between editions with the same batch and software. Parameters and cells differ
    by more than claims are judged by. Those within a draft come last."""
    words: list[str] = []
    groups = text.grouped(_rates(plan), lambda r: (r.device, r.count, r.edition, r.value))
    for group in groups.values():
        shared = set.intersection(*({*row.levels.items()} for row in group))
        own = ({k: v for k, v in row.levels.items() if (k, v) not in shared} for row in group)
        cells = dict(zip(map(_cell, group), map(text.levels_text, own), strict=True))
        if len(cells) > 1:
            label, row = plan.project.devices[group[0].device].label, group[0]
            number = f"{text.exact(row.value)} samples/s for {text.listed(cells.values())}"
            words.append(f"{row.edition}: {label}, {number}")
    for row in plan.published:
        if row.counted and _apart(plan, row.value, row.counted):
            counts = f"{text.exact(row.value)} parameters, but the model has {row.counted:,.0f}"
            words.append(f"{row.edition}: {counts}")
    for claim in plan.study.claims:
        ratio = parse(claim.expression, fits=claim.fits is not None)
        recomputed = recompute(ratio, plan, claim.edition, claim.metric)
        if recomputed and claim.published and not agrees(claim, recomputed, plan.study.thresholds):
            printed = (
                f"{text.ratio(claim.published)}, but its own numbers give {text.ratio(recomputed)}"
            )
            words.append(f"{claim.text}: {printed}")
    used = {plan.study.source.sheet, *(row.sheet for row in plan.published)}
    sheets = [sheet for name, sheet in plan.project.sheets.items() if name in used]
    for item, fact in chain.from_iterable(sheet.facts.items() for sheet in sheets):
        if fact.contradicted:
            words.append(f"{Compared(item, (), None).label}: {fact.where}")
    same = text.grouped(_rates(plan), lambda row: (_cell(row), conditions(row)))
    alike = [rows for (_, under), rows in same.items() if "not stated" not in under]
    words = list(dict.fromkeys([*words, *_between_editions(plan, alike)]))
    return sorted(words, key=in_draft)


def in_draft(contradiction: str) -> bool:
    """Whether a contradiction is within a draft of the source, which nobody published as final."""
    return contradiction.startswith("draft: ")


def changes(plan: StudyPlan) -> list[str]:
    """The cells that differ between editions, where batch or software is not stated to be the
    same: that is no contradiction."""
    against, cells = contradictions(plan), text.grouped(_rates(plan), _cell).values()
    return [words for words in _between_editions(plan, cells) if words not in against]


def _rates(plan: StudyPlan) -> list[Published]:
    return [row for row in plan.published if row.metric == RATE and row.levels]


def _between_editions(plan: StudyPlan, groups: Iterable[list[Published]]) -> list[str]:
    """The lowest and the highest number of each group, if they are apart and of two editions."""
    words = []
    for group in groups:
        low, high = (end(group, key=lambda row: row.value) for end in (min, max))
        if low.edition != high.edition and _apart(plan, low.value, high.value):
            cell = f"{plan.project.devices[low.device].label}, {text.levels_text(low.levels)}"
            ends = [f"{text.exact(r.value)} ({r.edition}, {conditions(r)})" for r in (low, high)]
            apart = f"{text.percent(high.value / low.value - 1)}% apart between editions"
            words.append(f"{cell}: {apart}, {' and '.join(ends)}")
    return words


def conditions(row: Published) -> str:
    """The software and the batch with which a number was measured."""
    return f"{row.software or 'not stated'}, batch {row.batch_size or 'not stated'}"


def _cell(row: Published) -> tuple[str, int, str]:
    return row.device, row.count, level_key(row.levels)


def _apart(plan: StudyPlan, one: float, other: float) -> bool:
    return max(one / other, other / one) > 1 + plan.study.thresholds.claim_tolerance


def published_mfu(plan: StudyPlan, row: Published) -> float | None:
    """The share of its device's peak that a published rate needs; None where FLOPs or peak are not
    known."""
    train = published_settings(plan.project, plan.name, row).train
    peaks = {p.precision: p.datasheet_tflops for p in plan.project.devices[row.device].peaks}
    peak = peaks.get(train.precision.removesuffix("_full"))
    if row.metric != RATE or not (row.flops_per_sample and peak):
        return None
    return row.flops_per_sample * row.value / row.count / 1e12 / peak


class ClaimFacts(NamedTuple):
    """What the source's sheets and its own numbers say about a claimed ratio."""

    equal: float | None  # with the denominator's levels on both sides; None: they are equal anyhow
    differs: dict[str, str]  # the numerator's levels that the denominator does not have
    mfu: list[tuple[str, float]]  # of two devices, the shares of their peaks
    warmup_inside: list[str]
    """The devices whose window probably includes the warm-up: the source leaves it out on the
    other side only."""


def facts_of_claim(study: StudyResults, row: ClaimRow) -> ClaimFacts:
    """The facts of a claim."""
    plan = study.plan
    claim = claim_of(study, row)
    ratio = parse(claim.expression, fits=claim.fits is not None)
    above, below = (cell_levels(ref, study.study.factors, study.study.baseline) for ref in ratio)
    differs = {name: level for name, level in above.items() if below[name] != level}
    equal = Ratio(CellRef(ratio.numerator.device, ratio.denominator.levels), ratio.denominator)
    alike = differs and len(ratio.devices) == 2
    shares, steps = list[tuple[str, float]](), dict[str, int]()
    for ref in ratio:
        rows = [r for r in published_of(ref, plan, claim.edition) if r.metric == claim.metric]
        for number in rows[:1]:
            if len(ratio.devices) == 2 and (mfu := published_mfu(plan, number)):
                shares.append((study.label(ref.device), mfu))
            fact = stated(number, plan).get("warmup_steps")
            steps[study.label(ref.device)] = sum(map(int, fact.values)) if fact else 0
    return ClaimFacts(
        equal=recompute(equal, plan, claim.edition, claim.metric) if alike else None,
        differs=differs,
        mfu=shares,
        warmup_inside=[name for name, left_out in steps.items() if any(steps.values()) > left_out],
    )
