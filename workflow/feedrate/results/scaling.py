"""A model of throughput over the count of devices: computing, and one all-reduce a step.

    step(n) = c + a (n - 1) / n        a = 2 bytes / bandwidth

A ring all-reduce sends 2 (n - 1) / n times the gradients' bytes over each device's link (Patarasuk
and Yuan 2009). `c` is the step of one device, with what overlaps counted there. Slower links
between hosts, and stragglers, are not in it: the error on the measured counts tells how far it
holds.
"""

from collections.abc import Mapping
from typing import NamedTuple


class Scaling(NamedTuple):
    """The fitted constants, s."""

    compute_s: float
    exchange_s: float

    def step_s(self, count: int) -> float:
        """Time of a step on so many devices."""
        return self.compute_s + self.exchange_s * (count - 1) / count


def fit_scaling(steps_s: Mapping[int, float]) -> Scaling | None:
    """Least squares over measured step times by count; None for fewer than two counts.

    An exchange of less than no time is noise: it is taken as none, and the steps' mean as `c`.
    """
    if len(steps_s) < 2:
        return None
    points = [((count - 1) / count, step_s) for count, step_s in steps_s.items()]
    mean_x = sum(x for x, _ in points) / len(points)
    mean_y = sum(y for _, y in points) / len(points)
    slope = sum((x - mean_x) * (y - mean_y) for x, y in points) / sum(
        (x - mean_x) ** 2 for x, _ in points
    )
    if slope <= 0:
        return Scaling(mean_y, 0.0)
    return Scaling(mean_y - slope * mean_x, slope)
