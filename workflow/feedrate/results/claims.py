"""Checks the claims of the studies against the published numbers and against ours."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from feedrate.config.study import Claim
from feedrate.config.values import level_text
from feedrate.results.columns import CLAIMS, RUNS
from feedrate.results.expression import CellRef, Ratio, cell_levels, parse
from feedrate.results.settings import ClaimSettings, ClaimStudy, PublishedFacts
from feedrate.results.statistics import Estimate, ratio_interval
from feedrate.results.tables import Row, read_csv, write_result

NO_DATA = "no data here"
RATES = ("samples_per_s", "tflops_per_device")
"""Metrics that the ends of epochs lower."""


def check_claims(results: Path, settings: ClaimSettings, out: Path) -> None:
    """Check the claims against results.csv; `out` is claims.csv."""
    write_result(out, CLAIMS, claim_rows(read_csv(results, RUNS), settings))


def claim_rows(runs: Sequence[Row], settings: ClaimSettings) -> list[Row]:
    """A row for each claim. A claim with `*` has a row for each measured device, and one that does
    not name a factor of `within` a row for each level that was measured.

    `runs` are the rows of results.csv.
    """
    return [
        {"study": name, **row}
        for name, study in settings.studies.items()
        for row in _Claims(study, [run for run in runs if run["study"] == name]).rows()
    ]


def recompute(
    ratio: Ratio, study: ClaimStudy, edition: str, metric: str = "samples_per_s"
) -> float | None:
    """The ratio of the published numbers themselves; None where a cell was not published.

    Rows of `edition` count, or where it is empty those of the headline.
    """
    above, below = (_published(ref, study, edition, metric) for ref in ratio)
    return above / below if above and below else None


def agrees(recomputed: float, printed: float) -> bool:
    """Whether two values are the same to the printed one's precision (1.1 and 1.1028)."""
    text = repr(float(printed))
    digits = 0 if "e" in text else len(text.partition(".")[2])
    return abs(recomputed - printed) <= 0.5 * 10**-digits * (1 + 1e-9)


class _Claims:
    """The claims of one study, and its runs by device and levels."""

    def __init__(self, study: ClaimStudy, runs: Sequence[Row]) -> None:
        self._study = study
        self._cells: dict[tuple[str, ...], list[Row]] = {}
        for run in runs:
            levels = (level_text(run[factor]) for factor in study.factors)
            self._cells.setdefault((run["device"], *levels), []).append(run)

    def rows(self) -> Iterator[Row]:
        for claim in self._study.claims:
            ratio = parse(claim.expression, fits=claim.fits is not None)
            devices = self._study.measured
            for one in [ratio.on(d) for d in devices] if ratio.any_device else [ratio]:
                for each in self._within(one):
                    yield {
                        "claim": claim.id,
                        "source": self._study.source,
                        "edition": claim.edition or _headline_edition(self._study),
                        "statement": claim.text,
                        "device": ";".join(each.devices),
                        **self._checked(claim, each),
                    }

    def _within(self, ratio: Ratio) -> list[Ratio]:
        """The ratio at each measured level of the factors that no speed-up crosses; the ratio
        itself where none was measured."""
        ratios = [ratio]
        for factor in self._study.within:
            if not ratio.names(factor):
                levels = [level_text(level) for level in self._study.factors[factor].levels]
                ratios = [one.at(factor, level) for one in ratios for level in levels]
        return [one for one in ratios if all(self._runs(ref) for ref in one)] or [ratio]

    def _runs(self, ref: CellRef) -> list[Row]:
        levels = cell_levels(ref, self._study.factors, self._study.baseline)
        return self._cells.get((ref.device, *levels.values()), [])

    def _checked(self, claim: Claim, ratio: Ratio) -> Row:
        if claim.fits is not None:
            return self._fits(claim.fits, ratio.numerator)
        recomputed = recompute(ratio, self._study, claim.edition, claim.metric)
        measured, reason = self._measure(claim, ratio)
        verdict, why = (NO_DATA, reason) if measured is None else self._judge(claim, measured)
        row: Row = {
            "expression": str(ratio),
            "published_value": claim.published,
            "recomputed_from_published": recomputed,
            "published_verdict": "",
            "verdict": verdict,
            "why": why,
        }
        if recomputed is not None:
            row["published_verdict"] = "consistent" if _consistent(claim, recomputed) else "not"
        return row | dict(
            zip(("measured", "ci_low", "ci_high"), measured or (None,) * 3, strict=True)
        )

    def _fits(self, claimed: bool, cell: CellRef) -> Row:
        """A claim that a cell trains, or that it runs out of memory."""
        ended = [run["status"] for run in self._runs(cell)]
        verdict, why = NO_DATA, _absent(cell, self._runs(cell))
        if "ok" in ended:  # one run of several shows that the cell fits
            verdict, why = ("holds" if claimed else "does not"), "it trained"
        elif "out_of_memory" in ended:
            verdict, why = ("does not" if claimed else "holds"), "it ran out of memory"
        return {"expression": str(cell), "verdict": verdict, "why": why}

    def _measure(self, claim: Claim, ratio: Ratio) -> tuple[Estimate | None, str]:
        """Our ratio of medians over ok runs, or why there is none."""
        cells = [(ref, self._runs(ref)) for ref in ratio]
        rates = [
            [run[claim.metric] for run in runs if _counts(run, claim.metric)] for _, runs in cells
        ]
        missing = [_absent(*cell) for cell, good in zip(cells, rates, strict=True) if not good]
        if missing:
            return None, " ".join(dict.fromkeys(missing))
        return ratio_interval(rates[0], rates[1], self._study.confidence), ""

    def _judge(self, claim: Claim, measured: Estimate) -> tuple[str, str]:
        """Verdict and reason; `at_least` takes precedence over a printed value."""
        value = f"Measured {measured.value:.3g}"
        if measured.low is not None and measured.high is not None:
            value += f" ({measured.low:.3g} to {measured.high:.3g})"
        if claim.at_least is not None:
            holds = measured.value >= claim.at_least
            why = f"{value}, at least {claim.at_least:g} claimed."
        elif claim.published is not None:
            tolerance, off = self._study.tolerance, measured.value / claim.published - 1
            holds = abs(off) <= tolerance
            allowed = f"{'within' if holds else 'beyond'} the {tolerance:.0%} allowed"
            why = f"{value}, {claim.published:g} claimed: {off:+.1%}, {allowed}."
        else:
            return NO_DATA, f"{value}; the claim gives no value to compare with."
        return ("holds" if holds else "does not"), why


def _consistent(claim: Claim, recomputed: float) -> bool:
    printed = claim.published is None or agrees(recomputed, claim.published)
    return printed and (claim.at_least is None or recomputed >= claim.at_least)


def _counts(run: Row, metric: str) -> bool:
    """Whether a run has the metric, and a rate over epochs that are long enough."""
    is_short = metric in RATES and run.get("short_epochs")
    return bool(run["status"] == "ok" and run[metric] and not is_short)


def _absent(ref: CellRef, runs: Sequence[Row]) -> str:
    if not runs:
        return f"{ref} was not measured."
    if runs[0].get("short_epochs"):
        steps = runs[0]["steps_per_epoch"]
        return f"{ref}: too few steps per epoch ({steps}) to compare with published rates."
    causes = (run["cause"] for run in runs if run["cause"])
    return f"{ref}: {runs[0]['status']}: {next(causes, 'no cause given')}"


def _published(ref: CellRef, study: ClaimStudy, edition: str, metric: str) -> float | None:
    wanted = cell_levels(ref, study.factors, study.baseline)

    def is_cell(row: PublishedFacts) -> bool:
        """A published number that names no level belongs to no cell."""
        texts = {name: level_text(level) for name, level in study.levels_of(row).items()}
        return bool(row.device == ref.device and row.levels and texts == wanted)

    chosen = [
        row
        for row in study.published
        if row.metric == metric
        and (row.edition == edition if edition else row.headline)
        and is_cell(row)
    ]
    # Of two rows of an edition, the one that its source puts forward.
    return min(chosen, key=lambda row: not row.headline).value if chosen else None


def _headline_edition(study: ClaimStudy) -> str:
    return ";".join(dict.fromkeys(row.edition for row in study.published if row.headline))
