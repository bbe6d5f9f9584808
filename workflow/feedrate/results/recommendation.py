"""The setting to use on each device, or why the runs do not decide it yet."""

import math
from collections.abc import Iterable, Sequence
from typing import Any

from feedrate.config.study import Study
from feedrate.config.values import cell_name, level_text
from feedrate.results.comparability import WORKERS, trains_the_same
from feedrate.results.files import Row
from feedrate.results.statistics import (
    REPEATABILITY,
    Noise,
    Noises,
    assumed_noise,
    critical,
    noise_of,
    rate_text,
    ratio_interval,
    selection_bias,
    variance,
)

MOST_REPEATS = 100
"""Forecasts of repeats end here."""
OK_RATES = "ok rates"
"""The key of a row for the rates of the cell's ok runs, samples/s; no factor has a space."""


def recommend(cells: Sequence[Row], study: Study, noise: Noises) -> None:
    """Set `recommended`, `recommendation`, `open` and `repeats_to_decide` in the rows of one study,
    which have the OK_RATES of their ok runs. The cells of a device that train the same as the
    baseline are compared with each other, within each level of the factors in `within`; none
    where only one was tried, and none of inference, where throughput is not all that counts."""
    groups: dict[tuple[str, str], tuple[list[Row], list[Row]]] = {}
    for cell in cells:
        cell |= {"recommended": False, "recommendation": "", "open": "", "repeats_to_decide": None}
        if cell["status"] != "unsupported" and not cell.get("measured_as"):
            within = cell_name({f: cell[f] for f in study.within})
            alike = trains_the_same(study.factors, cell, study.baseline_of(cell))
            groups.setdefault((cell["device"], within), ([], []))[alike].append(cell)
    for (device, _), (others, tried) in groups.items():
        good = [c for c in tried if c["status"] == "ok" and c.get("task") != "inference"]
        if good and len(tried) > 1:
            which = "with data" + " that trains the same" * any(c["status"] == "ok" for c in others)
            _Choice(good, study, noise[good[0]["study"], device], which).make()


class _Choice:
    """The choice among the cells of one device; `which` says which these are."""

    def __init__(self, cells: list[Row], study: Study, noise: Noise | None, which: str) -> None:
        self._study, self._which, lines = study, which, study.thresholds
        self._level, self._others = lines.confidence, len(cells) - 1
        steady = (cell["block_noise"] for cell in cells if not cell["disturbed"])
        assumed = assumed_noise(lines.noise_share, steady)
        self._noise, self._repeated = noise or assumed, noise is not None
        factor = next((n for n, factor in study.factors.items() if factor.sets == WORKERS), None)
        self._workers = factor if factor and len(study.factors[factor].levels) > 1 else None
        self._cells = sorted(cells, key=self._cost)
        self._best = max(cells, key=lambda cell: cell["samples_per_s"])
        self._matters = 1 + lines.smallest_effect
        varied = {f for f in study.factors if len({level_text(cell[f]) for cell in cells}) > 1}
        self._given = [f for f in study.within if f != self._workers]
        self._named = varied.union(self._given) - {self._workers}

    def make(self) -> None:
        """Recommend the simplest cell that no other may beat by the smallest effect or more. A cell
        is out if another is measurably faster by what may matter, and undecided if the interval of
        their ratio includes both. Only the first undecided cell and its rivals need repeats."""
        able = [cell for cell in self._cells if not self._beats(*self._over(self._best, cell))]
        for cell in able:
            over = [(other, *self._over(other, cell)) for other in able if other is not cell]
            rivals = [(other, low, high) for other, low, high in over if high >= self._matters]
            if not rivals:
                cell |= {"recommended": True, "recommendation": self._sentence(cell)}
                return
            if not any(self._beats(low, high) for _, low, high in rivals):
                self._leave_open(cell, [other for other, *_ in rivals])
                return

    def _cost(self, cell: Row) -> tuple[int, int, float]:
        """Fewer changes from the baseline come first, then fewer workers, then the faster."""
        few = cell[self._workers] if self._workers else 0
        return len(self._changed(cell)), few, -cell["samples_per_s"]

    def _over(self, one: Row, other: Row) -> tuple[float, float]:
        """The interval of the ratio of two rates; those of all cells hold together."""
        noise = self._between(one, other)
        rates = one[OK_RATES], other[OK_RATES]
        value, low, high = ratio_interval(*rates, self._level, noise, self._others)
        return low or value, high or value

    def _between(self, one: Row, other: Row) -> Noise:
        """The noise of two cells. If it is assumed, the steps of a disturbed run count too, but
        only for its own cell."""
        own = [cell["block_noise"] or 0.0 for cell in (one, other)]
        return self._noise if self._repeated else self._noise._replace(sd=max(self._noise.sd, *own))

    def _beats(self, low: float, high: float) -> bool:
        """Whether a ratio with this interval is above 1 and may matter."""
        return low > 1 and high >= self._matters

    def _leave_open(self, cell: Row, rivals: list[Row]) -> None:
        """Say in the rows of a cell and its rivals what is undecided between them, with the ratio
        to the rival that needs the most repeats."""

        def difficulty(other: Row) -> tuple[int, float]:
            return self._repeats(cell, other), other["samples_per_s"]

        hardest = max(rivals, key=difficulty)
        needed = self._repeats(cell, hardest)
        decide = f"about {needed} repeats of each would decide"
        if not self._repeated or needed == MOST_REPEATS:
            decide = f"at least {needed} runs of each are needed"
        names = [self._with_rate(cell), self._with_rate(hardest)]
        if len(rivals) > 1:
            names = [", ".join(names), f"{len(rivals) - 1} more"]
        above, below = hardest["samples_per_s"], cell["samples_per_s"]
        low, high = self._over(hardest, cell)
        text = f"Undecided between {' and '.join(names)}: the ratio is "
        text += f"{rate_text(above)}/{rate_text(below)} = {above / below:.3f}; "
        if not self._repeated:
            text += f"{self._assumption(hardest, cell)}, and "
        text += f"with {len(self._cells)} settings compared, the interval is {low:.3f} to "
        text += f"{high:.3f}; {decide}."
        for row in (cell, *rivals):
            row |= {"open": text, "repeats_to_decide": max(needed - len(row[OK_RATES]), 1)}

    def _repeats(self, cell: Row, other: Row) -> int:
        """Repeats of two cells that would decide between them, if their ratio stays as it is."""
        start = min(len(cell[OK_RATES]), len(other[OK_RATES])) + 1
        if not self._repeated:
            return start
        own = [noise_of(one[OK_RATES], self._noise) or self._noise for one in (cell, other)]
        sd = math.hypot(*(noise.sd for noise in own))
        gap = math.log(other["samples_per_s"] / cell["samples_per_s"])
        goal = max(gap, math.log(self._matters) - gap)
        for n in range(start, MOST_REPEATS):
            limit = critical(self._level, self._noise.dof + 2 * (n - start + 1), self._others)
            if limit * sd * math.sqrt(variance(n)) < goal:
                return n
        return MOST_REPEATS

    def _sentence(self, cell: Row) -> str:
        given = ", ".join(f"{factor} = {level_text(cell[factor])}" for factor in self._given)
        use = self._name(cell, self._given)
        if self._workers:
            use += " per rank"
        text = f"With {given}, use" if given else "Use"
        text += f" {use or 'the baseline'}: {rate_text(cell['samples_per_s'])} samples/s"
        if len(self._cells) == 1:
            text += f", the only setting {self._which}"
        elif cell is self._best:
            text += f", the best of {len(self._cells)} settings{self._luck()}"
        else:
            effect = f"{100 * (self._matters - 1):.3g}%"
            text += f", less than {effect} below the best, {self._with_rate(self._best)}"
            text += self._luck()
        if not self._repeated:
            alone = len(self._cells) == 1
            text += f", {'from single runs' if alone else self._assumption(cell, self._best)}"
        return f"{text}{self._cores(cell)}."

    def _assumption(self, one: Row, other: Row) -> str:
        """The assumption where nothing was repeated."""
        share = self._between(one, other).sd * REPEATABILITY
        return f"assuming that single runs differ by up to {share:.0%}"

    def _luck(self) -> str:
        """How far noise alone raises the best of the settings that may be equal."""
        equal = sum(self._over(self._best, c)[0] <= 1 for c in self._cells if c is not self._best)
        bias = selection_bias(self._noise, len(self._best[OK_RATES]), 1 + equal)
        if not equal:
            return ""
        maybe = f"the best of {1 + equal} that may be equal"
        return f" ({maybe}; if they are, its rate is about {bias:.1%} too high)"

    def _with_rate(self, cell: Row) -> str:
        """The name of a cell with its rate: `2 workers (14.3 samples/s)`."""
        name = self._name(cell) or "the baseline"
        return f"{name} ({rate_text(cell['samples_per_s'])} samples/s)"

    def _name(self, cell: Row, known: Iterable[str] = ()) -> str:
        """What distinguishes a cell, except `known` factors: `decode = host, 2 workers`."""
        named = self._named.union(self._changed(cell)).difference(known)
        levels = [f"{f} = {level_text(cell[f])}" for f in self._study.factors if f in named]
        if self._workers:
            few = cell[self._workers]
            levels.append(f"{few or 'no'} worker{'s' * (few > 1)}")
        return ", ".join(levels)

    def _changed(self, cell: Row) -> dict[str, Any]:
        """The levels, workers aside, in which a cell differs from its baseline."""
        study, base = self._study, self._study.baseline_of(cell)
        return {f: cell[f] for f in study.factors if f != self._workers and cell[f] != base[f]}

    def _cores(self, cell: Row) -> str:
        cores, nodes = cell["cores_granted"], cell["nodes"] or 1
        if self._workers is None or cores is None:
            return ""
        busy = (cell[self._workers] + 1) * (cell["world_size"] or 1) // nodes
        text = "; on each host the job has" if nodes > 1 else "; the job has"
        text += f" {cores} CPU core" if cores == 1 else f" {cores} CPU cores"
        return f"{text}, fewer than its {busy} workers and ranks" if busy > cores else text
