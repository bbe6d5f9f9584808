"""How often an answer is useful or wrong, and what it costs to follow it, in simulated studies; and
whether intervals of training over the model alone cover, in golden runs."""

import math
import os
import random
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from itertools import product
from operator import itemgetter
from pathlib import Path
from statistics import fmean, median
from typing import NamedTuple

from benchmarks.figure import Figure
from feedrate.config.settings import ModelSettings, Settings
from feedrate.config.spec import StudyProtocol
from feedrate.config.study import Factor, Source, Study
from feedrate.jobs.events import read_run_events
from feedrate.results.answers import LIVE_MODEL, WINDOW, groups_of
from feedrate.results.files import Row
from feedrate.results.limits import limit_of
from feedrate.results.parts import names_of, over_runs, round_ratios
from feedrate.results.statistics import CONFIDENCE, median_interval, noise_by_device

STUDIES = 200
"""Simulated studies of each truth, kind of noise, number of repeats and measure."""
REPEATS = (2, 3, 5)
ROUNDS, ROUND_SD = 5, 0.02
"""Rounds of a run, and the standard deviation between them."""
CANCELLED = 0.5
"""The part of a run's own noise that is left in training over the model alone."""
MODEL_ALONE = 1.05
"""The rate of the model alone over that of the fastest setting."""
TINY = 1e-9
COVERED, WRONG = 93.0, 5.0
"""The least share of intervals that cover, and the largest of wrong statements, %."""
GOLDEN = Path(__file__).resolve().parents[1] / "tests/golden"
GOLDEN_STUDIES, SEED = 1_000, 39

TRUTHS = {
    "4 settings, one is 18% slower": [0.82, 1.0, 1.0, 1.0],
    "4 settings, one is 10% faster": [1.0, 1.0, 1.1, 1.0],
    "22 settings, one is 20% faster": [*[1.0] * 11, 1.2, *[1.0] * 10],
    "22 settings, one is 18% slower": [0.82, *[1.0] * 21],
}
"""The true rates of settings with 0, 1, 2 … workers."""
USEFUL = dict(zip(TRUTHS, (75, 63, 79, 78), strict=True))
"""The least share of useful answers, %."""


class Noise(NamedTuple):
    """What makes runs differ, as standard deviations and shares of ln(rate)."""

    sd: float = 0.03
    slow: float = 0.0
    """Share of the runs that are slower by 10% to 40%."""
    tails: bool = False
    """Whether the noise is Student's with 3 degrees of freedom."""
    unequal: float = 1.0
    """The noise of a cell is up to so many times larger or smaller."""
    wander: float = 0.0
    """Standard deviation of the machine's state, which stays for about ten runs."""
    drift: float = 0.0
    """Change of the machine from the first run to the last."""


NOISES = {
    "1%": Noise(0.01),
    "3%": Noise(0.03),
    "10%": Noise(0.10),
    "slow runs": Noise(slow=0.05),
    "heavy tails": Noise(tails=True),
    "unequal cells": Noise(unequal=2.0),
    "wandering machine": Noise(0.01, wander=0.05),
    "drift": Noise(drift=0.05),
}


class Case(NamedTuple):
    """What is simulated."""

    truth: str
    noise: str
    repeats: int
    measure: str


class Outcome(NamedTuple):
    """Shares of the studies of a case, %: useful answers, wrong bounds of the gain or the loss, and
    wrong ranges of the limit; and the throughput that is lost, %."""

    useful: float
    wrong: float
    wrong_limit: float
    lost: float


def study_of(settings: int) -> Study:
    """A study of numbers of workers."""
    return Study(
        title="Simulated",
        question="How often is the answer wrong?",
        source=Source(title="none"),
        settings=Settings(model=ModelSettings(name="any", size="tiny")),
        protocol=StudyProtocol(steps=40, warmup_steps=1),
        factors={"workers": Factor(sets="loader.workers", levels=list(range(settings)))},
        baseline={"workers": 0},
    )


def run_row(cell: int, rate: float, ratios: Sequence[float] = ()) -> Row:
    """A row of results.csv; `ratios` are those of the model alone to training, by round."""
    row = {
        **{"study": "s", "device": "d", "cell": f"workers={cell}", "workers": cell},
        **{"status": "ok", "task": "training", "measured_as": None, "block_noise": None},
        **{"samples_per_s": rate, "model_ratio": None, "rounds": len(ratios)},
    }
    if ratios:
        row |= zip(names_of("model"), median_interval(ratios, CONFIDENCE), strict=True)
    return row


def runs_of(rng: random.Random, rates: Sequence[float], noise: Noise, case: Case) -> list[Row]:
    """The runs of one study: repeat 1 of all cells, then repeat 2, and so on."""
    scales = [math.exp(rng.uniform(-1, 1) * math.log(noise.unequal)) for _ in rates]
    state, rows, count = rng.gauss(0, noise.wander), [], len(rates) * case.repeats
    for number in range(count):
        cell = number % len(rates)
        state = 0.9 * state + rng.gauss(0, noise.wander * math.sqrt(1 - 0.9**2))
        machine = state + noise.drift * (number / count - 0.5)
        own = rng.gauss(0, 1)
        if noise.tails:  # of variance 1
            own /= math.sqrt(sum(rng.gauss(0, 1) ** 2 for _ in range(3)))
        own *= noise.sd * scales[cell]
        if rng.random() < noise.slow:
            own += math.log(rng.uniform(0.6, 0.9))
        rate, ratios = rates[cell] * math.exp(own + machine), list[float]()
        if case.measure == LIVE_MODEL:
            ratio = MODEL_ALONE * max(rates) / rates[cell] * math.exp(-CANCELLED * own)
            ratios = [ratio * math.exp(rng.gauss(0, ROUND_SD)) for _ in range(ROUNDS)]
        rows.append(run_row(cell, rate, ratios))
    return rows


def outcome(case: Case) -> Outcome:
    """Simulate the studies of a case."""
    rates, rng = TRUTHS[case.truth], random.Random(f"{SEED} {case}")
    study, best, found = study_of(len(rates)), max(rates), []
    lines = study.thresholds
    for _ in range(STUDIES):
        runs = runs_of(rng, rates, NOISES[case.noise], case)
        (group,) = groups_of(runs, study).values()
        assert group.use
        assert group.measure == case.measure
        answer, rate = group.answer(group.use), rates[int(group.use.rpartition("=")[2])]
        least, most = answer["gain_at_least"], answer["other_gain_at_most"]
        between = noise_by_device(runs, itemgetter("model_ratio")).get(("s", "d"))
        cell = {
            **{"status": "ok", "task": "training", "world_size": 1, "device_kind": "cpu"},
            **{"data_wait_share": 1 - rate / best / MODEL_ALONE, "peak_memory_gib": 1.0},
            **{"loader_workers": 1, "decodes_on_device": False},
            **over_runs(group.runs[group.use], "model", between),
        }
        limit = limit_of(cell, lines, None, group.faster(group.use), group.luck)
        low, high = (end or 0.0 for end in limit[1:])
        gain = MODEL_ALONE * best / rate - 1
        found.append(
            Outcome(
                useful=least >= 0.01 or most < lines.smallest_effect,
                wrong=least > rate / rates[0] - 1 + TINY or most < best / rate - 1 - TINY,
                wrong_limit=not low - TINY <= gain <= high + TINY,
                lost=1 - rate / best,
            )
        )
    return Outcome(*(100 * fmean(column) for column in zip(*found, strict=True)))


@cache
def recorded() -> list[tuple[float, list[float]]]:
    """Of each golden run, ln(training over the model alone): its level over that of its setting,
    and its rounds over the run. Both are scaled: a mean of few takes a part of their variance."""
    found = []
    for cell in sorted(GOLDEN.glob("**/runs/*/*/*")):
        ratios = (round_ratios(read_run_events(run), "model") for run in sorted(cell.glob("rep*")))
        runs = [[-math.log(ratio) for ratio in of_run] for of_run in ratios if len(of_run) > 1]
        if len(runs) > 1:
            levels, wide = list(map(median, runs)), math.sqrt(len(runs) / (len(runs) - 1))
            for level, rounds in zip(levels, runs, strict=True):
                scale = math.sqrt(len(rounds) / (len(rounds) - 1))
                rest = [scale * (value - fmean(rounds)) for value in rounds]
                found.append((wide * (level - fmean(levels)), rest))
    return found


def golden_coverage(repeats: int) -> float:
    """Share of studies of equal settings, %, in which the intervals of all ratios contain 1. A run
    has the level of a golden run, and rounds that are drawn from it."""
    rng, study, covered = random.Random(SEED), study_of(4), []
    for _ in range(GOLDEN_STUDIES):
        runs = []
        for cell in [*range(4)] * repeats:
            level, rounds = rng.choice(recorded())
            ratios = [math.exp(-level - rng.choice(rounds)) for _ in rounds]
            runs.append(run_row(cell, 1.0, ratios))
        (group,) = groups_of(runs, study).values()
        assert group.measure == LIVE_MODEL
        ratios_to_base = [group.ratio(f"workers={cell}", "workers=0") for cell in (1, 2, 3)]
        covered.append(all(low and high and low <= 1 <= high for _, low, high in ratios_to_base))
    return 100 * fmean(covered)


def mean(outcomes: Iterable[Outcome]) -> Outcome:
    """The mean of outcomes."""
    return Outcome(*map(fmean, zip(*outcomes, strict=True)))


def measure() -> Iterator[Figure]:
    """The coverage in golden runs, and the outcomes of each truth and measure; what is wrong, for
    the kind of noise with most of it."""
    for repeats in REPEATS:
        name = f"live/model of golden runs, {repeats} repeats: intervals"
        yield Figure(name, golden_coverage(repeats), COVERED, "%", at_most=False)
    cases = [Case(*case) for case in product(TRUTHS, NOISES, REPEATS, (WINDOW, LIVE_MODEL))]
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        outcomes = dict(zip(cases, pool.map(outcome, cases), strict=True))
    for truth, by in product(TRUTHS, (WINDOW, LIVE_MODEL)):
        of_noise = [mean(outcomes[Case(truth, n, r, by)] for r in REPEATS) for n in NOISES]
        usual, name = mean(of_noise), f"{truth}, {by}"
        note = f"throughput lost: {usual.lost:.1f}%"
        yield Figure(f"{name}: useful", usual.useful, USEFUL[truth], "%", note, at_most=False)
        wrong = max(one.wrong for one in of_noise)
        yield Figure(f"{name}: wrong", wrong, WRONG, "%", f"mean: {usual.wrong:.1f}%")
        if by == LIVE_MODEL:
            wrong = max(one.wrong_limit for one in of_noise)
            note = f"mean: {usual.wrong_limit:.1f}%"
            yield Figure(f"{name}: wrong limit", wrong, WRONG, "%", note)
