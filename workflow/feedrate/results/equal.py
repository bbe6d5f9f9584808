"""Equal quality: whether a cell's loss departs from its reference's by more than seeds make it.

Cells of one seed see the same samples in the same order, and so repeats are compared in pairs. What
seeds do is the range of the reference's repeats or, where that is larger, the median range of the
cells that are held to it: two seeds of the reference that happen to agree flag nobody. At least two
repeats in common are needed, and as many samples trained on. Cells that keep the smaller last batch
of an epoch see other samples, how many is not known here, and are compared with none.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

Row = dict[str, Any]
Key = tuple[str, str, str]
"""Study, device, cell."""
NAMES = ("loss_shift", "loss_seeds", "loss_departs")
FEWEST = 2
"""Repeats from which seeds have a range."""


def departures(
    cells: Mapping[Key, Sequence[Row]], reference_of: Mapping[Key, Key]
) -> dict[Key, Row]:
    """For each cell, by key, how far its loss is from its reference's; `cells` are rows of runs.

    `loss_shift` is the mean over the common repeats of cell minus reference, `loss_seeds` what
    seeds do, `loss_departs` whether the shift is more than that; None where it is not known.
    """
    ends = {key: _ends(runs) for key, runs in cells.items()}
    seeds = {key: _seeds(key, ends, reference_of) for key in set(reference_of.values())}
    return {key: _departure(key, ends, reference_of[key], seeds) for key in cells}


def trained_samples(run: Row) -> int:
    """Samples that a run trained on, warm-up included."""
    steps = run["steps"] + run["warmup_steps"]
    return int(steps * run["batch_size"] * run["gradient_accumulation"] * run["world_size"])


def _ends(runs: Iterable[Row]) -> dict[tuple[int, int], float]:
    """Losses at the end of the good runs, by repeat and samples."""
    return {
        (run["repeat"], trained_samples(run)): run["loss_end"]
        for run in runs
        if run["status"] == "ok"
        and run.get("loss_end") is not None
        and not run.get("keeps_last_batch")
    }


def _seeds(
    reference: Key,
    ends: Mapping[Key, Mapping[tuple[int, int], float]],
    reference_of: Mapping[Key, Key],
) -> float | None:
    own = ends.get(reference, {})
    if len(own) < FEWEST:
        return None
    held = [ends[key] for key, other in reference_of.items() if other == reference]
    ranges = [_range(losses) for losses in held if len(losses) >= FEWEST]
    return max(_range(own), float(np.median(ranges)))


def _range(losses: Mapping[Any, float]) -> float:
    return max(losses.values()) - min(losses.values())


def _departure(
    key: Key,
    ends: Mapping[Key, Mapping[tuple[int, int], float]],
    reference: Key,
    seeds: Mapping[Key, float | None],
) -> Row:
    margin = seeds[reference]
    common = ends[key].keys() & ends.get(reference, {}).keys()
    if margin is None or key == reference or len(common) < FEWEST:
        return dict.fromkeys(NAMES) | {"loss_seeds": margin if key == reference else None}
    shift = float(np.mean([ends[key][one] - ends[reference][one] for one in sorted(common)]))
    return dict(zip(NAMES, (shift, margin, abs(shift) > margin), strict=True))
