"""A model of throughput over the count of devices: computing, then one all-reduce a step.

    step(n) = c + a (n - 1) / n        a = 2 bytes / bandwidth

A ring all-reduce sends 2 (n - 1) / n times the gradients' bytes over each device's link (Patarasuk
and Yuan 2009). `c` is a step of one device. Both are measured, not fitted: the model alone, and the
exchange alone. Loading, exchange that hides behind computing, slower links between hosts and
stragglers are not in it: its error on the measured counts tells how far it holds.
"""

from typing import NamedTuple


class Scaling(NamedTuple):
    """The constants, s."""

    compute_s: float
    exchange_s: float

    def step_s(self, count: int) -> float:
        """Time of a step on so many devices."""
        return self.compute_s + self.exchange_s * (count - 1) / count


def scaling(count: int, compute_s: float, exchange_s: float) -> Scaling:
    """From what was measured on `count` devices, two or more: a step's computing with nothing
    exchanged, and its exchange with nothing computed, s."""
    return Scaling(compute_s, exchange_s * count / (count - 1))
