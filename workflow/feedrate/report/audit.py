"""Contradictions within a study's source, and the facts behind one of its claims: numbers only."""

from collections.abc import Iterator
from typing import Literal, NamedTuple

from feedrate.config.plan import published_settings
from feedrate.config.study import Claim, Published
from feedrate.config.values import level_text
from feedrate.report.study import StudyResults
from feedrate.report.text import grouped
from feedrate.results.claims import agrees, published_of, recompute
from feedrate.results.comparability import stated
from feedrate.results.expression import ANY, CellRef, Ratio, cell_levels, parse
from feedrate.results.study_plan import StudyPlan

RATE = "samples_per_s"


class Contradiction(NamedTuple):
    """What a source prints, and what contradicts it.

    same number: two settings with one number; parameters: not those of the model as built;
    editions: the lowest and the highest of one cell; ratio: not that of its own table.
    """

    kind: Literal["same number", "parameters", "editions", "ratio"]
    printed: float
    against: float
    numbers: tuple[Published, ...] = ()
    claim: Claim | None = None


def contradictions(plan: StudyPlan) -> list[Contradiction]:
    """All contradictions of a study's source."""
    return [*_same_numbers(plan), *_parameters(plan), *_ratios(plan), *_editions(plan)]


def _same_numbers(plan: StudyPlan) -> Iterator[Contradiction]:
    """Equal rates of one edition: real runs never agree in all digits."""
    rates = [row for row in plan.published if row.metric == RATE]
    for group in grouped(rates, lambda r: (r.device, r.count, r.edition, r.value)).values():
        if len({level_key(row) for row in group}) > 1:
            yield Contradiction("same number", group[0].value, group[0].value, tuple(group))


def _parameters(plan: StudyPlan) -> Iterator[Contradiction]:
    tolerance = plan.study.thresholds.claim_tolerance
    for row in plan.published:
        if row.counted and abs(row.value / row.counted - 1) > tolerance:
            yield Contradiction("parameters", row.value, row.counted, (row,))


def _ratios(plan: StudyPlan) -> Iterator[Contradiction]:
    for claim in plan.study.claims:
        if claim.published is not None:
            ratio = parse(claim.expression)
            known = (
                None
                if ANY in ratio.devices
                else recompute(ratio, plan, claim.edition, claim.metric)
            )
            if known is not None and not agrees(known, claim.published):
                yield Contradiction("ratio", claim.published, known, claim=claim)


def _editions(plan: StudyPlan) -> Iterator[Contradiction]:
    """Cells whose rates differ between editions by more than claims are judged by."""
    rates = [row for row in plan.published if row.metric == RATE and row.levels]
    for group in grouped(rates, lambda r: (r.device, r.count, level_key(r))).values():
        group.sort(key=lambda row: row.value)
        low, high = group[0].value, group[-1].value
        apart = high / low - 1 > plan.study.thresholds.claim_tolerance
        if apart and len({row.edition for row in group}) > 1:
            yield Contradiction("editions", low, high, tuple(group))


def level_key(row: Published) -> tuple[tuple[str, str], ...]:
    """The levels of a published number, as a key."""
    return tuple(sorted((name, level_text(level)) for name, level in row.levels.items()))


def published_mfu(plan: StudyPlan, row: Published) -> tuple[str, float | None]:
    """The precision of a published rate's cell, and the share of its device's peak that it needs;
    None where FLOPs or peak are not known."""
    train = published_settings(plan.project, plan.name, row).train
    precision = train.precision.removesuffix("_full")
    peaks = plan.project.devices[row.device].peaks
    peak = next((p.datasheet_tflops for p in peaks if p.precision == precision), None)
    if not (row.flops_per_sample and peak):
        return precision, None
    return precision, row.flops_per_sample * row.value / row.count / 1e12 / peak


class Side(NamedTuple):
    """One side of a claimed ratio, as the source states it."""

    device: str
    value: float | None
    """The published rate."""
    mfu: float | None
    warmup_steps: int | None
    """Steps that are left out; None where the source states none."""


class ClaimFacts(NamedTuple):
    """What is known of a claim."""

    printed: float | None
    recomputed: float | None
    """The ratio of the source's own numbers."""
    agrees: bool | None
    equal_settings: float | None
    """The same with the denominator's levels on both sides; None where they are equal anyhow."""
    differs: dict[str, tuple[str, str]]
    """The factors in which the sides differ, with both levels."""
    numerator: Side
    denominator: Side
    measured: float | None
    verdict: str
    """Of the measurement here; empty without a row of it."""

    @property
    def warmup_inside(self) -> list[str]:
        """The devices whose window probably includes the warm-up: the source leaves it out on the
        other side only."""
        sides = self.numerator, self.denominator
        left_out = [side.device for side in sides if side.warmup_steps]
        return [s.device for s in sides if not s.warmup_steps and left_out]


def facts_of_claim(study: StudyResults, claim: Claim) -> ClaimFacts:
    """The facts of a claim about a ratio of two cells."""
    plan, ratio = study.plan, parse(claim.expression, fits=claim.fits is not None)
    above, below = (cell_levels(ref, plan.study.factors, plan.study.baseline) for ref in ratio)
    differs = {name: (above[name], below[name]) for name in above if above[name] != below[name]}
    recomputed = recompute(ratio, plan, claim.edition, claim.metric)
    equal = Ratio(CellRef(ratio.numerator.device, ratio.denominator.levels), ratio.denominator)
    alike = differs and len(ratio.devices) == 2
    row = next((row for row in study.claims if row.claim == claim.id), None)
    known = recomputed is not None and claim.published is not None
    return ClaimFacts(
        printed=claim.published,
        recomputed=recomputed,
        agrees=agrees(recomputed, claim.published) if known else None,
        equal_settings=recompute(equal, plan, claim.edition, claim.metric) if alike else None,
        differs=differs,
        numerator=_side(plan, ratio.numerator, claim),
        denominator=_side(plan, ratio.denominator, claim),
        measured=row.measured if row else None,
        verdict=row.verdict if row else "",
    )


def _side(plan: StudyPlan, ref: CellRef, claim: Claim) -> Side:
    row = next(
        (r for r in published_of(ref, plan, claim.edition) if r.metric == claim.metric), None
    )
    if row is None:
        return Side(ref.device, None, None, None)
    fact = stated(row, plan.sources).get("warmup_steps")
    steps = fact.says if fact and isinstance(fact.says, int) else None
    return Side(ref.device, row.value, published_mfu(plan, row)[1], steps)
