"""Checks the claims of the studies against the published numbers and against ours."""

import math
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from statistics import median

from feedrate.config.study import Claim, Published, Thresholds
from feedrate.config.values import cell_name, level_text, parse_level
from feedrate.jobs.events import NOT_TRIED
from feedrate.results.answers import WINDOW, group_key, groups_of
from feedrate.results.comparability import RATES, Kind, compare, in_the_way
from feedrate.results.expression import ANY, LARGEST, CellRef, Ratio, cell_levels, parse
from feedrate.results.files import CLAIMS, RUNS, Row, read_csv, write_csv
from feedrate.results.statistics import RATE, Estimate, noise_by_device, ratio_interval
from feedrate.results.study_plan import StudyPlan, read_plan

HOLDS, REFUTED, CANNOT_TELL = "holds", "refuted", "cannot tell"
NOT_COMPARABLE, NO_DATA = "not comparable", "no data here"
COUNTED = ("batch_size", "model_size_gib")
"""Metrics that are counted, not measured: every run of a cell has the same. The ratio of two
largest levels is known as a range, because the next level that was tried does not fit."""


def check_claims(plan: Path, results: Path) -> None:
    """Check the study's claims by its results.csv, and write claims.csv."""
    rows = claim_rows(read_csv(results / "results.csv", RUNS), read_plan(plan))
    write_csv(results / "claims.csv", CLAIMS, rows)


def claim_rows(runs: Sequence[Row], plan: StudyPlan) -> list[Row]:
    """A row for each claim, from the rows of results.csv. A claim with `*` has a row for each
    measured device; one that names no level of a `within` factor, a row for each measured level."""
    return [{"study": plan.name, **row} for row in _Claims(plan, runs).rows()]


def recompute(
    ratio: Ratio, plan: StudyPlan, edition: str, metric: str = "samples_per_s"
) -> float | None:
    """The ratio of the published numbers themselves; None where a cell was not published."""
    values: list[float] = []
    for ref in ratio:
        rows = published_of(ref, plan, edition)
        values += [row.value for row in rows if row.metric == metric][:1]
    return values[0] / values[1] if len(values) == 2 else None


def published_of(ref: CellRef, plan: StudyPlan, edition: str = "") -> list[Published]:
    """The published numbers of a cell in an edition, headline rows first; without an edition, only
    headline rows. A number that names no level belongs to no cell."""
    study, rows = plan.study, []
    wanted = cell_levels(ref, study.factors, study.baseline)
    for row in plan.published:
        levels = study.baseline | row.levels
        texts = {name: level_text(levels[name]) for name in study.factors}
        counts = row.edition == edition if edition else row.headline
        if counts and row.device == ref.device and row.levels and texts == wanted:
            rows.append(row)
    return sorted(rows, key=lambda row: not row.headline)


def agrees(claim: Claim, recomputed: float, thresholds: Thresholds) -> bool:
    """Whether the source's own ratio is what the claim says: a printed value to its precision (1.1
    and 1.1028), or within the claim's own tolerance ("about 10" and 10.9)."""
    if claim.published is None or claim.tolerance is not None:
        exact = Estimate(recomputed, recomputed, recomputed)
        return judge(claim, exact, thresholds) == HOLDS
    text = repr(float(claim.published))
    digits = 0 if "e" in text else len(text.partition(".")[2])
    return abs(recomputed - claim.published) <= 0.5 * 10**-digits * (1 + 1e-9)


def judge(claim: Claim, measured: Estimate, thresholds: Thresholds) -> str:
    """The verdict on a ratio: the claim holds if the whole interval is where the claim puts the
    ratio, and is refuted if none of it is. An end that is None is unbounded."""
    least, most = claim.bounds(thresholds)
    low, high = measured.low or 0.0, measured.high or math.inf
    if claim.metric in COUNTED:  # a level that does not fit is itself out of the range
        low = math.nextafter(low, math.inf) if low < measured.value else low
        high = math.nextafter(high, 0.0) if high > measured.value else high
    if high < least or low > most:
        return REFUTED
    return HOLDS if least <= low and high <= most else CANNOT_TELL


class _Claims:
    """The claims of one study, and its runs by device and levels."""

    def __init__(self, plan: StudyPlan, runs: Sequence[Row]) -> None:
        self._plan, self._study = plan, plan.study
        self._noises = {device: noise for (_, device), noise in noise_by_device(runs).items()}
        self._groups = groups_of(runs, plan.study)
        self._cells: dict[tuple[str, ...], list[Row]] = {}
        for run in runs:
            levels = (level_text(run[factor]) for factor in self._study.factors)
            self._cells.setdefault((run["device"], *levels), []).append(run)

    def rows(self) -> Iterator[Row]:
        editions = dict.fromkeys(row.edition for row in self._plan.published if row.headline)
        for claim in self._study.claims:
            ratio = parse(claim.expression, fits=claim.fits is not None)
            ratios = [ratio]
            if ANY in ratio.devices:
                ratios = [ratio.on(device) for device in self._plan.measured]
            for each in chain.from_iterable(map(self._within, ratios)):
                yield {
                    "claim": claim.id,
                    "of": claim.of,
                    "source": self._study.source.title,
                    "edition": claim.edition or ";".join(editions),
                    "statement": claim.text,
                    "device": ";".join(each.devices),
                    **self._checked(claim, each),
                }

    def _within(self, ratio: Ratio) -> list[Ratio]:
        """The ratio at each measured level of the factors that no speed-up crosses; the ratio
        itself where none was measured."""
        ratios = [ratio]
        for factor in self._study.within:
            if not any(factor in dict(cell.levels) for cell in ratio):
                levels = [level_text(level) for level in self._study.factors[factor].levels]
                ratios = [each.at(factor, level) for each in ratios for level in levels]
        measured = [each for each in ratios if all(self._runs(cell) for cell in each)]
        return measured or [ratio]

    def _largest(self, ref: CellRef) -> tuple[CellRef, list[Row]]:
        """The cell at the largest level that fits, in the place of LARGEST, and the runs above it:
        none of these is ok. Without LARGEST, the cell itself."""
        fits, above = ref, list[Row]()
        factor = next((name for name, level in ref.levels if level == LARGEST), None)
        if factor is None:
            return ref, []
        for level in self._study.factors[factor].texts:
            cell = ref._replace(levels=tuple((dict(ref.levels) | {factor: level}).items()))
            runs = self._runs(cell)
            if any(run["status"] == "ok" for run in runs):
                fits, above = cell, []
            else:
                above += runs
        return fits, above

    def _levels(self, ref: CellRef) -> dict[str, str]:
        """The levels of a cell; LARGEST stays if no level fits."""
        return cell_levels(self._largest(ref)[0], self._study.factors, self._study.baseline)

    def _runs(self, ref: CellRef) -> list[Row]:
        return self._cells.get((ref.device, *self._levels(ref).values()), [])

    def _checked(self, claim: Claim, ratio: Ratio) -> Row:
        refs = list(dict.fromkeys(ratio))
        cells = ";".join(f"{ref.device}/{cell_name(self._levels(ref))}" for ref in refs)
        row: Row = {"cells": cells, "expression": str(ratio), "metric": claim.metric}
        if claim.fits is not None:
            verdict, why = self._fits(claim.fits, ratio.numerator)
            row |= {"expression": str(ratio.numerator), "metric": ""}
        else:
            measured, row["measure"], why = self._measure(claim, ratio)
            thresholds = self._study.thresholds
            verdict = judge(claim, measured, thresholds) if measured else NO_DATA
            recomputed = recompute(ratio, self._plan, claim.edition, claim.metric)
            row["published_value"], row["recomputed_from_published"] = claim.published, recomputed
            if recomputed is not None:
                same = agrees(claim, recomputed, thresholds)
                row["published_verdict"] = "consistent" if same else "not"
            row["measured"], row["ci_low"], row["ci_high"] = measured or (None, None, None)
        different = self._differences(claim, refs) if verdict != NO_DATA else []
        if different:
            verdict, why = NOT_COMPARABLE, f"Not comparable: {'; '.join(different)}."
        return row | {"verdict": verdict, "why": why}

    def _differences(self, claim: Claim, refs: Sequence[CellRef]) -> list[str]:
        """Why our runs of these cells are not what the claim is about, each reason once."""
        metric = claim.metric if claim.fits is None else "peak_memory_gib"
        devices = {ref.device for ref in refs}
        kind: Kind = "loss" if metric.startswith("loss") else "memory"
        if metric in RATES:
            kind = "ratio" if len(devices) == 1 else "rate"
        work = {run.get("measured_as") or run["cell"] for ref in refs for run in self._runs(ref)}
        reasons = []
        if len(refs) == 2 and len(devices) == len(work) == 1:
            reasons.append("both cells have the same runs")
        for ref in refs:
            run = min(self._runs(ref), key=lambda run: run["status"] != "ok")
            if metric in RATES and run.get("short_epochs"):
                reasons.append(f"too few steps per epoch here: {run['steps_per_epoch']}")
            if claim.of == "source":
                row = next(iter(published_of(ref, self._plan, claim.edition)), None)
                items = in_the_way(compare(row, run, self._plan), kind)
                reasons += [item.reason for item in items]
        return list(dict.fromkeys(reasons))

    def _fits(self, claimed: bool, cell: CellRef) -> tuple[str, str]:
        """A claim that a cell trains, or that it runs out of memory."""
        runs = self._runs(cell)
        ended = {run["status"]: run["cause"] for run in reversed(runs)}
        if "ok" in ended:  # one run of several shows that the cell fits
            return (HOLDS if claimed else REFUTED), "It trained."
        if "out_of_memory" in ended:
            cause = ended["out_of_memory"]
            reason = cause if cause.startswith(NOT_TRIED) else "It ran out of memory."
            return (REFUTED if claimed else HOLDS), reason
        return NO_DATA, self._absent(cell, "")

    def _absent(self, ref: CellRef, metric: str) -> str:
        """Why a cell has no number. Levels that not every device supports are named, also those of
        the baseline."""
        factors, runs, own = self._study.factors, self._runs(ref), self._levels(ref)
        needy = {name: level for name, level in own.items() if level in factors[name].requires}
        named = ref._replace(levels=tuple((dict(ref.levels) | needy).items()))
        if any(run["status"] == "ok" and run[metric] for run in runs):
            return f"{named}: the next level did not run out of memory."
        if any(run["status"] == "ok" for run in runs):
            return f"{named}: its runs have no {metric}."
        if runs:
            causes = (run["cause"] for run in runs if run["cause"])
            return f"{named}: {runs[0]['status']}: {next(causes, 'no cause given')}"
        levels = {name: parse_level(level) for name, level in own.items()}
        measured = ref.device in self._plan.measured
        able = self._plan.project.devices[ref.device].able if measured else []
        parts = self._study.exclude if measured else []
        left_out = (f"left out: {part.why}" for part in parts if part.covers(levels, able))
        return f"{named} was {next(left_out, 'not measured.')}"

    def _measure(self, claim: Claim, ratio: Ratio) -> tuple[Estimate | None, str, str]:
        """Our ratio of medians over ok runs, and the measure of rates, or why there is none. That
        of two rates of one device is the same as in cells.csv. For two devices, the noise of a rate
        is the larger, if both are known; that of other metrics is the noise of these cells."""
        metric, confidence = claim.metric, self._study.thresholds.confidence
        above, below = (self._values(ref, metric) for ref in ratio)
        lacking = [ref for ref, values in zip(ratio, (above, below), strict=True) if not values]
        if lacking:
            return None, "", " ".join(dict.fromkeys(self._absent(ref, metric) for ref in lacking))
        if metric in COUNTED:
            return self._range(metric, ratio, above[0], below[0]), "", ""
        if metric not in RATES:
            return ratio_interval(above, below, confidence), "", ""
        runs = [self._runs(ref)[0] for ref in ratio]
        keys = {group_key(run, self._study) for run in runs}
        if metric == RATE and len(keys) == 1:
            group, cells = self._groups[keys.pop()], [run["cell"] for run in runs]
            return group.ratio(*cells), group.measure_of(*cells), ""
        known = [noise for noise in map(self._noises.get, ratio.devices) if noise]
        if len(known) < len(ratio.devices):  # repeats on one device say nothing about another
            return Estimate(median(above) / median(below), None, None), WINDOW, ""
        return ratio_interval(above, below, confidence, max(known)), WINDOW, ""

    def _values(self, ref: CellRef, metric: str) -> list[float]:
        """The values of ok runs. At LARGEST, only what is counted is known of a level unless the
        next one ran out of memory."""
        above = [run["status"] for run in self._largest(ref)[1]]
        if LARGEST in dict(ref.levels).values() and above[:1] != ["out_of_memory"]:
            metric = metric if metric in COUNTED else ""
        return [run[metric] for run in self._runs(ref) if run["status"] == "ok" and run.get(metric)]

    def _range(self, metric: str, ratio: Ratio, above: float, below: float) -> Estimate:
        """The ratio of two counted values. At LARGEST, a value ends below that of the level that
        failed, or nowhere."""

        def most(ref: CellRef, value: float) -> float | None:
            full = [run for run in self._largest(ref)[1] if run["status"] == "out_of_memory"]
            is_largest = LARGEST in dict(ref.levels).values()
            return (full[0][metric] if full else None) if is_largest else value

        low, high = most(ratio.denominator, below), most(ratio.numerator, above)
        return Estimate(above / below, low and above / low, high and high / below)
