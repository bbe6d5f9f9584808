"""`python -m feedrate.results.claims`: every claim against the published numbers and ours."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from feedrate.config.errors import ConfigError
from feedrate.config.reading import convert_text
from feedrate.config.study import Claim
from feedrate.config.values import level_text
from feedrate.core.errors import fail
from feedrate.results.columns import CLAIMS, RUNS
from feedrate.results.expression import (
    CellRef,
    ExpressionError,
    Ratio,
    cell_levels,
    parse,
    parse_cell,
)
from feedrate.results.settings import ClaimSettings, ClaimStudy, PublishedFacts
from feedrate.results.statistics import Estimate, ratio_interval
from feedrate.results.tables import read_rows, write_rows

NO_DATA = "no data here"

Row = dict[str, Any]


class Claimed(NamedTuple):
    """A claim on the devices that one of its rows is about."""

    claim: Claim
    ratio: Ratio


def claim_rows(runs: Sequence[Row], settings: ClaimSettings) -> list[Row]:
    """A row for each claim; one that says `*` has a row for each measured device, and one that does
    not name a factor of `within` a row for each level that was measured.

    `runs` are the rows of results.csv.
    """
    rows: list[Row] = []
    for name, study in settings.studies.items():
        cells: dict[tuple[str, ...], list[Row]] = {}
        for run in runs:
            if run["study"] == name:
                levels = [level_text(run[factor]) for factor in study.factors]
                cells.setdefault((run["device"], *levels), []).append(run)
        for claim in study.claims:
            read = parse if claim.fits is None else parse_cell
            ratio = read(claim.expression)
            ratios = [ratio.on(d) for d in study.measured] if ratio.any_device else [ratio]
            for one in ratios:
                for each in _within(one, study, cells):
                    rows.append({"study": name} | _row(Claimed(claim, each), study, cells))
    return rows


def _within(
    ratio: Ratio, study: ClaimStudy, cells: dict[tuple[str, ...], list[Row]]
) -> list[Ratio]:
    """The ratio at each measured level of the factors that no speed-up crosses; else as it is."""
    ratios = [ratio]
    for factor in study.within:
        if not ratio.names(factor):
            levels = [level_text(level) for level in study.factors[factor].levels]
            ratios = [one.at(factor, level) for one in ratios for level in levels]
    measured = [
        one
        for one in ratios
        if all(
            (ref.device, *cell_levels(ref, study.factors, study.baseline).values()) in cells
            for ref in one
        )
    ]
    return measured or [ratio]


def recompute(
    ratio: Ratio, study: ClaimStudy, edition: str, metric: str = "samples_per_s"
) -> float | None:
    """The ratio of the published numbers themselves; None where a cell was not published.

    Rows of `edition` count, or those of the headline where it is empty.
    """
    values = [_published(ref, study, edition, metric) for ref in ratio]
    above, below = values
    return above / below if above and below else None


def agrees(recomputed: float, printed: float) -> bool:
    """Whether two values are the same as far as the printed one is given (1.1 as 1.1028)."""
    text = repr(float(printed))
    digits = 0 if "e" in text else len(text.partition(".")[2])
    return abs(recomputed - printed) <= 0.5 * 10**-digits * (1 + 1e-9)


def _row(claimed: Claimed, study: ClaimStudy, cells: dict[tuple[str, ...], list[Row]]) -> Row:
    claim, ratio = claimed
    if claim.fits is not None:
        return _fit_row(claimed, study, cells)
    recomputed = recompute(ratio, study, claim.edition, claim.metric)
    published_verdict = ""
    if recomputed is not None:
        published_verdict = "consistent" if _consistent(claim, recomputed) else "not"
    measured, reason = _measure(claimed, study, cells)
    verdict, why = (NO_DATA, reason) if measured is None else _judge(claim, measured, study)
    return {
        "claim": claim.id,
        "device": ";".join(ratio.devices),
        "source": study.source,
        "edition": claim.edition or _headline_edition(study),
        "statement": claim.text,
        "expression": str(ratio),
        "published_value": claim.published,
        "recomputed_from_published": recomputed,
        "published_verdict": published_verdict,
        "measured": measured.value if measured else None,
        "ci_low": measured.low if measured else None,
        "ci_high": measured.high if measured else None,
        "verdict": verdict,
        "why": why,
    }


def _fit_row(claimed: Claimed, study: ClaimStudy, cells: dict[tuple[str, ...], list[Row]]) -> Row:
    """A claim that a cell trains, or that it runs out of memory."""
    claim, cell = claimed.claim, claimed.ratio.numerator
    levels = cell_levels(cell, study.factors, study.baseline)
    ended = [run["status"] for run in cells.get((cell.device, *levels.values()), [])]
    # One run of several that fits shows that the cell does.
    told = {"ok": True, "out_of_memory": False}
    trained = next((told[status] for status in told if status in ended), None)
    verdict, why = NO_DATA, _absent(cell, cells.get((cell.device, *levels.values()), []))
    if trained is not None:
        verdict = "holds" if trained == claim.fits else "does not"
        why = "it trained" if trained else "it ran out of memory"
    return {
        "claim": claim.id,
        "device": cell.device,
        "source": study.source,
        "edition": claim.edition or _headline_edition(study),
        "statement": claim.text,
        "expression": str(cell),
        "verdict": verdict,
        "why": why,
    }


def _consistent(claim: Claim, recomputed: float) -> bool:
    printed = claim.published is None or agrees(recomputed, claim.published)
    reached = claim.at_least is None or recomputed >= claim.at_least
    return printed and reached


def _measure(
    claimed: Claimed, study: ClaimStudy, cells: dict[tuple[str, ...], list[Row]]
) -> tuple[Estimate | None, str]:
    """Our ratio of medians over good runs, or why there is none."""
    rates: list[list[float]] = []
    missing: list[str] = []
    metric = claimed.claim.metric
    for ref in claimed.ratio:
        levels = cell_levels(ref, study.factors, study.baseline)
        runs = cells.get((ref.device, *levels.values()), [])
        good = [run[metric] for run in runs if run["status"] == "ok" and run[metric]]
        rates.append(good)
        if not good:
            missing.append(_absent(ref, runs))
    if missing:
        return None, " ".join(dict.fromkeys(missing))
    return ratio_interval(rates[0], rates[1], study.confidence), ""


def _absent(ref: CellRef, runs: Sequence[Row]) -> str:
    if not runs:
        return f"{ref} was not measured."
    causes = (run["cause"] for run in runs if run["cause"])
    return f"{ref}: {runs[0]['status']}: {next(causes, 'no cause given')}"


def _judge(claim: Claim, measured: Estimate, study: ClaimStudy) -> tuple[str, str]:
    """Verdict and reason; a statement in words (`at_least`) goes before a printed value."""
    said = f"measured {measured.value:.3g}"
    if measured.low is not None and measured.high is not None:
        said += f" ({measured.low:.3g} to {measured.high:.3g})"
    if claim.at_least is not None:
        holds = measured.value >= claim.at_least
        line = f"{said}, at least {claim.at_least:g} claimed"
    elif claim.published is not None:
        off = measured.value / claim.published - 1
        holds = abs(off) <= study.tolerance
        line = (
            f"{said}, {claim.published:g} claimed: {off:+.1%}, "
            f"{'within' if holds else 'beyond'} the {study.tolerance:.0%} allowed"
        )
    else:
        return NO_DATA, f"{said}; the claim gives no value to compare with."
    return ("holds" if holds else "does not"), f"{line[0].upper()}{line[1:]}."


def _published(ref: CellRef, study: ClaimStudy, edition: str, metric: str) -> float | None:
    wanted = cell_levels(ref, study.factors, study.baseline)
    rows = [
        row
        for row in study.published
        if row.metric == metric and _is_cell(row, ref.device, wanted, study)
    ]
    chosen = [row for row in rows if (row.edition == edition if edition else row.headline)]
    # Of two rows of an edition the one that its source puts forward.
    chosen.sort(key=lambda row: not row.headline)
    return chosen[0].value if chosen else None


def _is_cell(row: PublishedFacts, device: str, wanted: dict[str, str], study: ClaimStudy) -> bool:
    """Whether a published number is of this cell; one that names no level at all is of none."""
    if row.device != device or not row.levels:
        return False
    levels = study.baseline | row.levels
    return {factor: level_text(levels[factor]) for factor in study.factors} == wanted


def _headline_edition(study: ClaimStudy) -> str:
    return ";".join(dict.fromkeys(row.edition for row in study.published if row.headline))


def main(arguments: list[str] | None = None) -> int:
    """0 where claims.csv was written; 1, and one sentence, where it was not."""
    parser = argparse.ArgumentParser(
        prog="feedrate.results.claims", description="Claims against published and measured numbers."
    )
    parser.add_argument("--results", type=Path, required=True, help="results.csv")
    parser.add_argument("--settings", required=True, help="claim_settings, a Python literal")
    parser.add_argument("--out", type=Path, required=True, help="the claims.csv to write")
    options = parser.parse_args(arguments)
    try:
        settings = convert_text(options.settings, ClaimSettings, "--settings")
        write_rows(options.out, CLAIMS, claim_rows(read_rows(options.results, RUNS), settings))
    except (ConfigError, ExpressionError, OSError, ValueError) as error:
        return fail(parser.prog, error)
    return 0


if __name__ == "__main__":
    sys.exit(main())
