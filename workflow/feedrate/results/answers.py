"""The setting to use on each device, with two bounds that hold together, and ratios of settings."""

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from itertools import count
from statistics import median
from typing import Any

from feedrate.config.study import Study
from feedrate.config.values import cell_name
from feedrate.results import statistics
from feedrate.results.comparability import WORKERS, computes_the_same, trains_the_same
from feedrate.results.files import Row
from feedrate.results.parts import round_noise
from feedrate.results.statistics import BLOCK_NOISE, RATE, Estimate, Noise, noise_by_device

WINDOW, LIVE_MODEL = "window", "live/model"
"""What settings are compared by: the rates of their windows; or training over the model alone in
the same rounds, from which the machine's drift cancels."""

GroupKey = tuple[str, str]
"""A device, and the name of a baseline cell."""


def live_over_model(run: Mapping[str, Any]) -> float | None:
    """The rate of training over that of the model alone. No epoch starts in the blocks, so the time
    that the window lost to starts is added."""
    ratio, starts = run.get("model_ratio"), run.get("epoch_start_share") or 0.0
    return (1 - starts) / ratio if ratio else None


class Group:
    """The cells of a device that have ok runs and the same baseline. `alike` are those that train
    the same as it, each set of runs once: they are compared with each other."""

    def __init__(
        self,
        study: Study,
        key: GroupKey,
        runs: Mapping[str, Sequence[Row]],
        noises: Mapping[str, Noise | None],
    ) -> None:
        self.study, self.runs = study, runs
        self.device, self.baseline = key
        self._level = study.thresholds.confidence
        first = {cell: own[0] for cell, own in runs.items()}
        self._base = study.baseline_of(next(iter(first.values())))
        owners = {cell: run["measured_as"] or cell for cell, run in first.items()}
        # Cells that share runs count once, under the name of the cell that owns the runs.
        names = {owners[c]: c for c in sorted(runs, key=lambda c: owners[c] == c)}
        self._name = {cell: names[owner] for cell, owner in owners.items()}
        self._others = len(names) - 1
        self.alike = [
            cell
            for cell in runs
            if self._name[cell] == cell and trains_the_same(study.factors, first[cell], self._base)
        ]
        comparable = all(
            computes_the_same(study.factors, first[cell], self._base)
            and all(map(live_over_model, runs[cell]))
            for cell in self.alike
        )
        self.measure = LIVE_MODEL if comparable else WINDOW
        self._noises = noises
        self.is_single = noises[self.measure] is None

    def rates(self, cell: str) -> list[float]:
        """The rates of a cell's windows; none where it has no ok run."""
        return [run[RATE] for run in self.runs.get(cell, ())]

    def ratio(self, cell: str, other: str, assume: bool = False) -> Estimate:
        """A cell over another, by the measure of this group; the intervals of all cells hold
        together. Without repeats there is no interval, unless noise may be assumed."""
        cell, other = self._name[cell], self._name[other]
        if cell == other:
            return Estimate(1.0, 1.0, 1.0)
        measure = self.measure_of(cell, other)
        others = len(self.alike) - 1 if {cell, other} <= {*self.alike} else self._others
        noise = self._noises[measure]
        if assume and not noise:
            noise = self._assumed(measure, cell, other)
        values = self._values(cell, measure), self._values(other, measure)
        return statistics.ratio_interval(*values, self._level, noise, others)

    def measure_of(self, cell: str, other: str) -> str:
        """What two cells are compared by: the measure of the group if they are in `alike`."""
        compared = {self._name[cell], self._name[other]} <= {*self.alike}
        return self.measure if compared else WINDOW

    def faster(self, cell: str) -> list[Estimate]:
        """The ratios to a cell of the others that compute the same."""
        if cell not in self.runs:
            return []
        levels, factors = self.runs[cell][0], self.study.factors
        return [
            self.ratio(other, cell, assume=True)
            for other in self.alike
            if computes_the_same(factors, self.runs[other][0], levels)
        ]

    @property
    def use(self) -> str | None:
        """The first cell, by fewest changes from the baseline and then fewest workers, that is not
        slower than the best by the smallest effect or more, beyond what chance adds to the best;
        None of inference, where throughput is not all that counts."""
        return self._choice[0]

    @property
    def luck(self) -> float:
        """The share by which chance may raise what the cell to use shows of the model alone."""
        return self._choice[1] if self.measure == LIVE_MODEL else 0.0

    @cached_property
    def _choice(self) -> tuple[str | None, float]:
        cells = [c for c in self.alike if self.runs[c][0]["task"] != "inference"]
        if not cells:
            return None, 0.0
        values = {cell: self._values(cell, self.measure) for cell in cells}
        medians = {cell: median(own) for cell, own in values.items()}
        best = max(medians, key=medians.__getitem__)
        rivals = [c for c in cells if c != best and self._bounds(best, c)[0] <= 1]
        noise = self._noises[self.measure] or self._assumed(self.measure, best, *rivals)
        noise = statistics.noise_of(values[best], noise) or noise
        luck = statistics.selection_bias(noise, len(values[best]), 1 + len(rivals))
        least = medians[best] / (1 + self.study.thresholds.smallest_effect) / (1 + luck)
        able = [cell for cell in cells if medians[cell] >= least]
        return min(able, key=lambda cell: (*self._cost(cell), -medians[cell])), luck

    def answer(self, use: str) -> Row:
        """What the runs say of the cell to use, besides its own limit."""
        others = [cell for cell in self.alike if cell != use]
        over = {cell: self._bounds(cell, use) for cell in others}
        nearest = max(others, key=lambda cell: over[cell][1], default=None)
        low, high = over[nearest] if nearest else (None, None)
        has_baseline = self.baseline in self.runs
        gain = self._bounds(use, self.baseline)[0] - 1 if has_baseline else None
        noise = self._noises[WINDOW] or self._assumed(WINDOW, use)
        rate = statistics.median_interval(self.rates(use), self._level, noise)
        return {
            "study": self.runs[use][0]["study"],
            "device": self.device,
            "cell": use,
            "baseline": self.baseline,
            "compared": len(self.alike),
            RATE: rate.value,
            "ci_low": rate.low,
            "ci_high": rate.high,
            "gain_at_least": None if gain is None else max(gain, 0.0),
            "other_gain_at_most": max(high - 1, 0.0) if high else 0.0,
            "equals": ";".join(cell for cell, (low, high) in over.items() if low <= 1 <= high),
            "nearest": nearest,
            "nearest_low": low,
            "nearest_high": high,
            "measure": self.measure,
            "single": self.is_single,
            "more_repeats": self._more_repeats(),
        }

    def _values(self, cell: str, measure: str) -> list[float]:
        if measure == WINDOW:
            return self.rates(cell)
        return [value for value in map(live_over_model, self.runs[cell]) if value]

    def _bounds(self, cell: str, other: str) -> tuple[float, float]:
        value, low, high = self.ratio(cell, other, assume=True)
        return low or value, high or value

    def _assumed(self, measure: str, *cells: str) -> Noise:
        """The noise of single runs of these cells: what the study allows or, if larger, what their
        steps or rounds show."""
        runs = [run for cell in cells for run in self.runs[cell]]
        within = (
            run.get(BLOCK_NOISE) if measure == WINDOW else round_noise(run, "model") for run in runs
        )
        return statistics.assumed_noise(self.study.thresholds.noise_share, within)

    def _cost(self, cell: str) -> tuple[int, Any]:
        """The number of changes from the baseline, and the number of workers."""
        levels, factors = self.runs[cell][0], self.study.factors
        workers = [name for name, factor in factors.items() if factor.sets == WORKERS]
        changes = [f for f in factors if f not in workers and levels[f] != self._base[f]]
        return len(changes), [levels[name] for name in workers]

    def _more_repeats(self) -> int:
        """The further repeats of each cell that would halve the uncertainty of their ratios."""
        cells = len(self.alike)
        runs = min(len(self.runs[cell]) for cell in self.alike)
        noise = self._noises[self.measure]

        def width(repeats: int, dof: int) -> float:
            return statistics.critical(self._level, dof, cells - 1) * math.sqrt(
                statistics.variance(repeats)
            )

        goal = width(runs, (noise or self._assumed(self.measure, *self.alike)).dof) / 2
        dof = noise.dof if noise else 0
        return next(m for m in count(1) if width(runs + m, dof + cells * m) <= goal)


def groups_of(runs: Iterable[Row], study: Study) -> dict[GroupKey, Group]:
    """The groups of a study, from the rows of its results.csv."""
    runs = [run for run in runs if run["status"] == "ok" and run[RATE]]
    cells: dict[GroupKey, dict[str, list[Row]]] = {}
    for run in runs:
        group = cells.setdefault(group_key(run, study), {})
        group.setdefault(run["cell"], []).append(run)
    by_window = noise_by_device(runs)
    by_model = noise_by_device(runs, live_over_model, lambda run: round_noise(run, "model"))
    groups = {}
    for key, of_cells in cells.items():
        place = next(iter(of_cells.values()))[0]["study"], key[0]
        noises = {WINDOW: by_window.get(place), LIVE_MODEL: by_model.get(place)}
        groups[key] = Group(study, key, of_cells, noises)
    return groups


def group_key(row: Row, study: Study) -> GroupKey:
    """The group that a run or a cell belongs to."""
    return row["device"], cell_name(study.baseline_of(row))


def answer_rows(cells: Iterable[Row], groups: Iterable[Group]) -> list[Row]:
    """The rows of answers.csv, from those of cells.csv."""
    of_name = {(cell["device"], cell["cell"]): cell for cell in cells}
    rows = []
    for group in groups:
        if group.use is not None:
            cell = of_name[group.device, group.use]
            row = {name: cell[name] for name in (*group.study.factors, "site", "limit")}
            row |= {f"limit_{name}": cell[name] for name in ("gain_low", "gain_high")}
            rows.append(row | group.answer(group.use))
    return rows
