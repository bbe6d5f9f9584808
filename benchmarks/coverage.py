"""How often intervals cover, in studies simulated from recorded steps."""

import json
import math
import random
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from statistics import fmean, median
from typing import Any, NamedTuple

from benchmarks.figure import Figure
from feedrate.results.statistics import (
    block_noise,
    median_interval,
    noise_by_device,
    ratio_interval,
    selection_bias,
)

TRACES = Path(__file__).parent / "traces" / "steps.json"
"""Cell to the step times of each of its recorded runs, s: the timed window only."""
STEPS, BLOCK = 40, 8
"""Steps of a simulated run, and of each stretch that is copied from a recorded one."""
CELLS, STUDIES, LADDER = 4, 1_600, 22
REPEATS = (2, 3, 5)
LOWEST, HIGHEST = 93, 97
"""Coverage that is asked for, %."""
SEED = 20


class Trouble(NamedTuple):
    """What happens to the runs of a study beyond what was recorded."""

    drift: float = 0.0  # change of speed from the first run of the study to the last, share
    burst: float = 0.0  # share of the runs in which ten steps take twice as long
    slow: float = 0.0  # share of the runs that are slower by 10% to 40%


TROUBLES = {
    "as recorded": Trouble(),
    "drift of 5%": Trouble(drift=0.05),
    "5% of runs slower by 10% to 40%": Trouble(slow=0.05),
    "bursts in 20% of runs": Trouble(burst=0.2),
}


@cache
def recorded() -> list[list[float]]:
    """The step times of every recorded run, relative to its cell: run levels keep their noise.

    The level of a run is ln of its mean step time less the mean of these over the cell's n runs,
    times sqrt(n / (n - 1)), because a mean of the same runs takes a part of their variance. A cell
    with a single run says nothing of noise between runs.
    """
    found = []
    for cell in json.loads(TRACES.read_text()).values():
        logs = [math.log(fmean(steps)) for steps in cell]
        wide = math.sqrt(len(cell) / max(1, len(cell) - 1))
        for steps, log in zip(cell, logs, strict=True):
            level = math.exp(wide * (log - fmean(logs)) - log)
            found += [[level * step for step in steps]] * (len(cell) > 1)
    return found


def run(rng: random.Random, trouble: Trouble, when: float) -> dict[str, Any]:
    """One run at about 100 samples/s: stretches of one recorded run's steps, one after another.
    `when` is 0 at the study's start and 1 at its end."""
    trace = rng.choice(recorded())
    starts = [rng.randrange(len(trace)) for _ in range(STEPS // BLOCK)]
    steps = [trace[(start + n) % len(trace)] for start in starts for n in range(BLOCK)]
    factor = math.exp(trouble.drift * (when - 0.5))
    if rng.random() < trouble.slow:
        factor /= rng.uniform(0.6, 0.9)
    first = rng.randrange(STEPS) if rng.random() < trouble.burst else STEPS
    steps = [factor * step * (2 if first <= n < first + 10 else 1) for n, step in enumerate(steps)]
    return {"samples_per_s": 100 / fmean(steps), "block_noise": block_noise(steps)}


def study(
    rng: random.Random, trouble: Trouble, cells: int, repeats: int
) -> tuple[list[list[float]], Any]:
    """The rates of each of a study's equal cells, and its noise. Repeat 1 of all cells comes first,
    then repeat 2, and so on."""
    rows = []
    for number in range(cells * repeats):
        row = run(rng, trouble, number / (cells * repeats))
        row |= {"study": "simulated", "device": "cpu", "cell": number % cells, "status": "ok"}
        rows.append(row)
    rates = [[row["samples_per_s"] for row in rows[cell::cells]] for cell in range(cells)]
    return rates, noise_by_device(rows)["simulated", "cpu"]


@cache
def truth(trouble: Trouble) -> float:
    """The median rate of a cell over very many runs, spread over the study."""
    rng = random.Random(SEED)
    runs = (run(rng, trouble, rng.random()) for _ in range(4_000))
    return median(row["samples_per_s"] for row in runs)


def coverage(trouble: Trouble, repeats: int) -> tuple[float, float]:
    """Share of the 95% intervals of medians, and of ratios to the first cell, that cover, %."""
    rng, true = random.Random(SEED), truth(trouble)
    medians, ratios = [], []
    for _ in range(STUDIES):
        cells, noise = study(rng, trouble, CELLS, repeats)
        for cell in cells:
            _, low, high = median_interval(cell, 0.95, noise)
            medians.append(bool(low and high and low <= true <= high))
        for cell in cells[1:]:
            _, low, high = ratio_interval(cell, cells[0], 0.95, noise)
            ratios.append(bool(low and high and low <= 1.0 <= high))
    return 100 * fmean(medians), 100 * fmean(ratios)


def winners() -> tuple[float, float, float]:
    """Of LADDER equal levels with three repeats: studies in which one is reported as faster than
    the first, %; and how far the best exceeds the truth before and after its label is read, %."""
    rng, none = random.Random(SEED), Trouble()
    faster, above, labelled = [], [], []
    for _ in range(STUDIES // 16):
        (base, *others), noise = study(rng, none, LADDER, 3)
        found = [ratio_interval(cell, base, 0.95, noise, LADDER - 1) for cell in others]
        faster.append(any(ratio.low and ratio.low > 1 for ratio in found))
        excess = max(map(median, [base, *others])) / truth(none)
        above.append(excess - 1)
        labelled.append(excess / (1 + (selection_bias(noise, 3, LADDER) if noise else 0)) - 1)
    return 100 * fmean(faster), 100 * fmean(above), 100 * fmean(labelled)


def measure() -> Iterator[Figure]:
    """Coverage with each trouble, and false winners."""
    for name in TROUBLES:
        found = [coverage(TROUBLES[name], repeats) for repeats in REPEATS]
        note = "2, 3, 5 repeats: " + ", ".join(f"{m:.1f} and {r:.1f}" for m, r in found)
        shares = [share for pair in found for share in pair]
        yield Figure(f"95% intervals: {name}", min(shares), LOWEST, "%", note, at_most=False)
        yield Figure(f"95% intervals not too wide: {name}", max(shares), HIGHEST, "%")
    faster, above, labelled = winners()
    yield Figure(f"false winners among {LADDER} equal levels", faster, 5, "% of studies")
    note = f"{above:.1f}% without it"
    yield Figure("the best of them above the truth, as labelled", labelled, 1, "%", note)
