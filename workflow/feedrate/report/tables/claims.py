"""The claims of the source: as printed, from its own table, and as measured here."""

from feedrate.report import text
from feedrate.report.markup import Markup, el, join, row, small, table
from feedrate.report.rows import ClaimRow, Inputs
from feedrate.report.settings import TableSettings

MARKS = {"holds": "✓", "does not": "✗"}
"""A sign beside each verdict's word."""

_HEADS = ("Claim", "The source prints", "From its own table", "Measured here", "Verdict here")


def render(settings: TableSettings, inputs: Inputs) -> Markup:
    """A row a claim; those that were measured here stand first."""
    claims = inputs.rows("claims.csv", ClaimRow, settings.study)
    if not claims:
        return el("p", "The study states no claims.")
    claims.sort(key=lambda claim: claim.measured is None)
    return table(_HEADS, [_row(settings, claim) for claim in claims], "last-text")


def _row(settings: TableSettings, claim: ClaimRow) -> Markup:
    about = claim.expression + (f" ({claim.edition})" if claim.edition else "")
    agrees = {"consistent": "agrees", "not": "does not agree"}.get(claim.published_verdict, "")
    verdict = f"{MARKS.get(claim.verdict, '')} {claim.verdict}".strip()
    return row(
        [
            join(claim.statement, el("small", el("code", about))),
            text.ratio(claim.published_value),
            join(text.ratio(claim.recomputed_from_published), small(agrees)),
            join(
                text.ratio(claim.measured),
                small(text.ratio_interval(claim.ci_low, claim.ci_high)),
                small(settings.label(claim.device) if claim.measured is not None else ""),
            ),
            join(verdict, small(claim.why)),
        ],
    )
