"""The source's claims: as printed, by its own table, and measured here; then our own questions."""

from itertools import compress

from feedrate.report import text
from feedrate.report.context import PageSettings
from feedrate.report.markup import Markup, el, group_row, join, noted, record_link, row, table
from feedrate.report.rows import ClaimRow, Inputs

ORDER = 190

HEADS = ("Claim", "Printed by the source", "Its own table", "Measured here", "Verdict here")
MARKS = {"holds": "✓", "refuted": "✗"}
CONSISTENCY = {"consistent": "agrees", "not": "does not agree"}


def render(settings: PageSettings, inputs: Inputs) -> Markup:
    """A row for each claim, those of the source before ours, and those with a measurement first.
    Empty columns are left out."""
    claims = inputs.rows("claims.csv", ClaimRow, settings.study)
    if not claims:
        return el("p", "The study states no claims.")
    claims.sort(key=lambda claim: (claim.of == "ours", claim.measured is None))
    filled = zip(*(_fields(settings, claim) for claim in claims), strict=True)
    kept = [any(field != text.DASH for field in column) for column in filled]
    rows: list[Markup] = []
    for heading, group in text.grouped(claims, lambda claim: claim.heading).items():
        rows.append(group_row(heading, sum(kept)))
        rows += [row(*compress(_fields(settings, claim), kept)) for claim in group]
    return table([*compress(HEADS, kept)], rows, "last-text")


def _fields(settings: PageSettings, claim: ClaimRow) -> tuple[Markup | str, ...]:
    compared = f"{claim.metric} of {claim.expression}" if claim.metric else claim.expression
    about = text.with_remark(compared, claim.edition * (claim.of != "ours"))
    consistency = CONSISTENCY.get(claim.published_verdict, "")
    verdict = f"{MARKS.get(claim.verdict, '')} {claim.verdict}".strip()
    return (
        join(claim.statement, el("small", el("code", about))),
        text.ratio(claim.published_value),
        noted(text.ratio(claim.recomputed_from_published), consistency),
        noted(
            record_link(text.ratio(claim.measured), *claim.compared),
            text.ratio_interval(claim.ci_low, claim.ci_high),
            settings.label(claim.device) if claim.measured is not None else "",
        ),
        noted(record_link(verdict, *claim.compared), claim.why),
    )
