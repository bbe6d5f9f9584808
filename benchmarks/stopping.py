"""Simulation: how often `repeats: auto` decides wrongly, and how far it moves the ratio of rates.

Each study has cells with known rates. Runs are drawn block by block; after each, the recommendation
is made as for a real study, and cells that it leaves open get one more run, up to a budget.
docs/measurement-repeats.md shows the table of `python -m benchmarks.stopping`.
"""

import math
from collections.abc import Iterator, Sequence
from statistics import fmean, median
from typing import Any, NamedTuple

import numpy as np

from benchmarks.figure import Figure
from feedrate.config.study import Factor, Thresholds
from feedrate.results.params import CollectStudy
from feedrate.results.recommendation import OK_RATES, recommend
from feedrate.results.statistics import look_confidence, pooled_noise

PLANNED, MOST = 3, 12
CONFIDENCE = 0.95
EFFECT = Thresholds().smallest_effect
STUDIES = 1_000
"""Simulated studies of each case: a share of 5% has a standard error of 0.7%."""
LARGEST_BIAS = 0.01
"""Share by which stopping may move the ratio of two cells on average."""


class Case(NamedTuple):
    """Rates of the cells (workers 0, 1, …), and what disturbs the runs."""

    name: str
    rates: Sequence[float]
    sd: float
    drift: float = 0.0
    """Slowdown from the first block to the last possible one."""
    outliers: float = 0.0
    """Share of runs that are 20% slower."""


CASES = (
    Case("equal, noise 1%", (1, 1, 1), 0.01),
    Case("equal, noise 3%", (1, 1, 1), 0.03),
    Case("equal, noise 3%, two cells", (1, 1), 0.03),
    Case("half the smallest effect, noise 1%", (1, 1 + EFFECT / 2), 0.01),
    Case("the smallest effect, noise 1%", (1, 1 + EFFECT), 0.01),
    Case("the smallest effect, noise 3%", (1, 1 + EFFECT, 1 + EFFECT), 0.03),
    Case("twice the smallest effect, noise 3%", (1, 1 + 2 * EFFECT), 0.03),
    Case("equal, noise 2%, drift 5%", (1, 1, 1), 0.02, drift=0.05),
    Case("equal, noise 2%, one run of 20 slow", (1, 1, 1), 0.02, outliers=0.05),
)


class Result(NamedTuple):
    """Shares of the studies of a case, and means over them."""

    decided: float
    wrong: float
    repeats: float
    """Runs of a cell."""
    bias: float
    """Mean ln of the measured over the true ratio of the last cell and the first."""


def simulate(case: Case, confidence: float, most: int = MOST, studies: int = STUDIES) -> Result:
    """Studies of a case whose looks have this confidence, up to `most` repeats of a cell."""
    rng = np.random.default_rng(20)
    study = CollectStudy(
        factors={"workers": Factor(sets="loader.workers", levels=list(range(len(case.rates))))},
        baseline={"workers": 0},
        thresholds=Thresholds(confidence=confidence),
    )
    ended = [_one_study(case, study, most, rng) for _ in range(studies)]
    truth = math.log(case.rates[-1] / case.rates[0])
    return Result(
        decided=fmean(chosen is not None for chosen, _ in ended),
        wrong=fmean(chosen is not None and _is_wrong(case.rates, chosen) for chosen, _ in ended),
        repeats=fmean(len(row[OK_RATES]) for _, rows in ended for row in rows),
        bias=fmean(math.log(_middle(rows[-1]) / _middle(rows[0])) - truth for _, rows in ended),
    )


def _one_study(
    case: Case, study: CollectStudy, most: int, rng: np.random.Generator
) -> tuple[int | None, list[dict[str, Any]]]:
    """The workers that are recommended in the end, if any, and the rows of the cells."""
    rows: list[dict[str, Any]] = [
        {
            "study": "s",
            "device": "a",
            "cell": f"workers={n}",
            "workers": n,
            "status": "ok",
            "disturbed": "",
            OK_RATES: [],
        }
        | dict.fromkeys(("block_noise", "cores_granted", "nodes", "world_size"))
        for n in range(len(case.rates))
    ]
    for block in range(most):
        for row in rows:
            if block < PLANNED or row["open"]:
                row[OK_RATES].append(_draw(case, case.rates[row["workers"]], block, rng))
                row["samples_per_s"] = _middle(row)
        if block + 1 >= PLANNED:
            recommend(rows, study, {("s", "a"): pooled_noise(row[OK_RATES] for row in rows)})
            if chosen := [row["workers"] for row in rows if row["recommended"]]:
                return chosen[0], rows
    return None, rows


def _draw(case: Case, rate: float, block: int, rng: np.random.Generator) -> float:
    slow = 0.8 if rng.random() < case.outliers else 1.0
    drift = 1 - case.drift * block / (MOST - 1)
    return float(rate * slow * drift * math.exp(case.sd * rng.standard_normal()))


def _middle(row: dict[str, Any]) -> float:
    return median(row[OK_RATES])


def _is_wrong(rates: Sequence[float], chosen: int) -> bool:
    """Whether another setting is faster by the smallest effect, or a simpler one is as fast."""
    too_slow = max(rates) >= rates[chosen] * (1 + EFFECT)
    return too_slow or any(rate >= max(rates) for rate in rates[:chosen])


def measure() -> Iterator[Figure]:
    """Wrong decisions and bias, the largest of all cases."""
    level = look_confidence(CONFIDENCE, PLANNED, MOST)
    found = [simulate(case, level) for case in CASES]
    wrong, bias = max(r.wrong for r in found), max(abs(r.bias) for r in found)
    yield Figure("repeats: auto, wrong decisions, worst case", wrong, 1 - CONFIDENCE, "share")
    yield Figure("repeats: auto, bias of a ratio, worst case", bias, LARGEST_BIAS, "share")


def main() -> None:
    """Print the table of the documentation: three repeats, all looks at 95%, and ours."""
    level = look_confidence(CONFIDENCE, PLANNED, MOST)
    ways = (("three repeats", CONFIDENCE, PLANNED), ("every look at 95%", CONFIDENCE, MOST))
    print("| case | way | decided | wrong | repeats | bias |\n|---|---|---|---|---|---|")
    for case in CASES:
        for name, confidence, most in (*ways, ("repeats: auto", level, MOST)):
            r = simulate(case, confidence, most)
            print(
                f"| {case.name} | {name} | {r.decided:.0%} | {r.wrong:.1%} | {r.repeats:.1f} "
                f"| {r.bias:+.2%} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
