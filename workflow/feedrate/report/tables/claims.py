"""The claims of the source: as printed, recomputed from its own table, and measured here."""

from feedrate.report import text
from feedrate.report.markup import Markup, as_page, el, join, row, small, table
from feedrate.report.params import PageSettings
from feedrate.report.rows import ClaimRow, Inputs

NEEDS = ("claims",)
ORDER = 190

HEADS = (
    "Claim",
    "Printed by the source",
    "From the source's table",
    "Measured here",
    "Verdict here",
)
MARKS = {"holds": "✓", "does not": "✗"}
"""A sign next to the word of a verdict."""
CONSISTENCY = {"consistent": "agrees", "not": "does not agree"}


@as_page
def render(settings: PageSettings, inputs: Inputs) -> Markup:
    """A row for each claim, those with a measurement first."""
    claims = inputs.rows("claims.csv", ClaimRow, settings.study)
    if not claims:
        return el("p", "The study states no claims.")
    claims.sort(key=lambda claim: claim.measured is None)
    return table(HEADS, [_row(settings, claim) for claim in claims], "last-text")


def _row(settings: PageSettings, claim: ClaimRow) -> Markup:
    about = claim.expression + (f" ({claim.edition})" if claim.edition else "")
    consistency = CONSISTENCY.get(claim.published_verdict, "")
    verdict = f"{MARKS.get(claim.verdict, '')} {claim.verdict}".strip()
    return row(
        join(claim.statement, el("small", el("code", about))),
        text.ratio(claim.published_value),
        join(text.ratio(claim.recomputed_from_published), small(consistency)),
        join(
            text.ratio(claim.measured),
            small(text.ratio_interval(claim.ci_low, claim.ci_high)),
            small(settings.label(claim.device) if claim.measured is not None else ""),
        ),
        join(verdict, small(claim.why)),
    )
