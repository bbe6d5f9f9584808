"""Contradictions within a study's source, and the facts behind one of its claims."""

from collections.abc import Iterator
from typing import NamedTuple

from feedrate.config.plan import published_settings
from feedrate.config.study import Published
from feedrate.config.values import Level
from feedrate.report import text
from feedrate.report.rows import ClaimRow, level_key
from feedrate.report.study import StudyResults
from feedrate.results.claims import agrees, published_of, recompute
from feedrate.results.comparability import stated
from feedrate.results.expression import CellRef, Ratio, cell_levels, parse
from feedrate.results.study_plan import StudyPlan

RATE = "samples_per_s"


class Contradiction(NamedTuple):
    """What a source prints against itself or against the model, and the numbers behind it."""

    text: str
    numbers: tuple[float, ...]


def contradictions(plan: StudyPlan) -> list[Contradiction]:
    """All contradictions of a study's source: one number for two settings, numbers of parameters
    that the model does not have, ratios that its own table contradicts, and cells that differ
    between editions. The latter three differ by more than claims are judged by."""
    return [*_same_numbers(plan), *_parameters(plan), *_ratios(plan), *_editions(plan)]


def _same_numbers(plan: StudyPlan) -> Iterator[Contradiction]:
    rates = [row for row in plan.published if row.metric == RATE]
    for group in text.grouped(rates, lambda r: (r.device, r.count, r.edition, r.value)).values():
        cells = {_cell(row): text.levels_text(_differing(row, group)) for row in group}
        if len(cells) > 1:
            row = group[0]
            words = f"{text.exact(row.value)} samples/s for {text.listed(cells.values())}"
            label = plan.project.devices[row.device].label
            yield Contradiction(f"{label}, {row.edition}: {words}", (row.value,))


def _differing(row: Published, group: list[Published]) -> dict[str, Level]:
    """The levels of a number in which it differs from others."""
    return {k: v for k, v in row.levels.items() if any(other.levels.get(k) != v for other in group)}


def _parameters(plan: StudyPlan) -> Iterator[Contradiction]:
    for row in plan.published:
        if row.counted and _apart(plan, row.value, row.counted):
            words = f"{text.exact(row.value)} parameters, but the model has {row.counted:,.0f}"
            yield Contradiction(f"{row.edition}: {words}", (row.value, row.counted))


def _ratios(plan: StudyPlan) -> Iterator[Contradiction]:
    for claim in plan.study.claims:
        ratio, printed = parse(claim.expression, fits=claim.fits is not None), claim.published
        known = recompute(ratio, plan, claim.edition, claim.metric)
        if known is not None and printed is not None and not agrees(known, printed):
            words = f"{text.ratio(printed)}, but its own numbers give {text.ratio(known)}"
            yield Contradiction(f"{claim.text}: {words}", (printed, known))


def _editions(plan: StudyPlan) -> Iterator[Contradiction]:
    rates = [row for row in plan.published if row.metric == RATE and row.levels]
    for group in text.grouped(rates, _cell).values():
        low, high = (end(group, key=lambda row: row.value) for end in (min, max))
        if low.edition != high.edition and _apart(plan, low.value, high.value):
            label = plan.project.devices[low.device].label
            cell = f"{label}, {text.levels_text(low.levels)}"
            ends = " and ".join(f"{text.exact(r.value)} ({r.edition})" for r in (low, high))
            words = f"{text.percent(high.value / low.value - 1)}% apart between editions, {ends}"
            yield Contradiction(f"{cell}: {words}", (low.value, high.value))


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
    """What is known of a claimed ratio."""

    printed: float | None
    recomputed: float | None  # from the source's own numbers
    agrees: bool
    equal: float | None  # with the denominator's levels on both sides; None: they are equal anyhow
    differs: dict[str, str]  # the numerator's levels that the denominator does not have
    mfu: list[tuple[str, float]]  # of two devices, the shares of their peaks
    warmup_inside: list[str]
    """The devices whose window probably includes the warm-up: the source leaves it out on the
    other side only."""


def facts_of_claim(study: StudyResults, row: ClaimRow) -> ClaimFacts:
    """The facts of a claim."""
    plan = study.plan
    claim = next(claim for claim in study.study.claims if claim.id == row.claim)
    ratio = parse(claim.expression, fits=claim.fits is not None)
    above, below = (cell_levels(ref, study.study.factors, study.study.baseline) for ref in ratio)
    differs = {name: level for name, level in above.items() if below[name] != level}
    equal = Ratio(CellRef(ratio.numerator.device, ratio.denominator.levels), ratio.denominator)
    alike = differs and len(ratio.devices) == 2
    recomputed, printed = row.recomputed_from_published, claim.published
    shares, steps = list[tuple[str, float]](), dict[str, int]()
    for ref in ratio:
        rows = [r for r in published_of(ref, plan, claim.edition) if r.metric == claim.metric]
        for number in rows[:1]:
            if len(ratio.devices) == 2 and (mfu := published_mfu(plan, number)):
                shares.append((study.label(ref.device), mfu))
            fact = stated(number, plan).get("warmup_steps")
            steps[study.label(ref.device)] = sum(map(int, fact.values)) if fact else 0
    return ClaimFacts(
        printed=printed,
        recomputed=recomputed,
        agrees=recomputed is not None and printed is not None and agrees(recomputed, printed),
        equal=recompute(equal, plan, claim.edition, claim.metric) if alike else None,
        differs=differs,
        mfu=shares,
        warmup_inside=[name for name, left_out in steps.items() if any(steps.values()) > left_out],
    )
