"""Which loader to use: `min(loader rate, model rate)` by the same model that a study fits, and
no more than the host's cores can do of both together.

Scaled decoding makes other pixels, so it is never chosen: where it gains, that is told beside.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from feedrate.config.settings import Decode
from feedrate.results.fitting import predict

AS_GOOD = 0.02
"""What comes within this share of the best is as good: then the simpler is used."""
SIMPLER: tuple[Decode, ...] = ("host", "device", "cache", "reference")
"""The cache needs a store on the disk; the reference is the base of all ratios, not a choice."""


class Loader(msgspec.Struct, frozen=True):
    """A loader that was drained alone, all ranks at the same time."""

    decode: Decode
    workers: int
    samples_per_s: float
    """Of all ranks together."""
    startup_s: float
    cpu_s: float = 0.0
    """CPU seconds that a sample costs, in all processes; 0: not known."""
    scaled: bool = False
    psnr_db: float | None = None
    """How near its pixels are to the reference's; None: equal."""

    @property
    def name(self) -> str:
        """As it is set."""
        scaled = ", scaled_decode: true" if self.scaled else ""
        return f"decode: {self.decode}{scaled}, workers: {self.workers}"


class Refused(msgspec.Struct, frozen=True):
    """A level that cannot be had here, or not with as many workers."""

    decode: Decode
    why: str
    scaled: bool = False
    workers: int = 0
    """With so many it was tried, and with more it was not."""


class Model(NamedTuple):
    """The model alone, all ranks, on a batch that stays on the device; of a sharded one, its steps
    without their waiting for data."""

    samples_per_s: float
    cpu_s: float = 0.0
    """CPU seconds that a sample costs the host; 0: not known."""
    cores: float = math.inf
    """Of the host, for all ranks and their workers."""


class Run(NamedTuple):
    """A real training run, all ranks."""

    samples_per_s: float
    without_wait_per_s: float
    """Samples/s of its steps without their waiting for data."""
    model: Model | None

    @property
    def computes_per_s(self) -> float:
        """What the model takes: training does more in a step than the model alone, but where the
        host runs ahead of the device its wait for data says too little, and that is the limit."""
        alone = self.model.samples_per_s if self.model else math.inf
        return min(alone, self.without_wait_per_s)


class Choice(NamedTuple):
    """What to use, and what to expect of it."""

    loader: Loader
    expected: float
    """Samples/s."""


def expected(loader: Loader, model: Model) -> float:
    """Samples/s of a training run: the smaller of both rates, or one after the other where the
    process that trains loads too; never more than the cores can compute of both."""
    tc_s = 1 / model.samples_per_s
    if in_turn(loader):
        return predict(0, tc_s, 1 / loader.samples_per_s)
    beside = max(1, loader.workers)
    return min(predict(beside, tc_s, beside / loader.samples_per_s), shared(loader, model))


def in_turn(loader: Loader) -> bool:
    """Whether the process that trains loads too, so that one waits for the other."""
    return loader.workers == 0 and loader.decode != "device"


def shared(loader: Loader, model: Model) -> float:
    """Samples/s that the host's cores can load and compute side by side."""
    known = loader.cpu_s > 0 < model.cpu_s
    return model.cores / (loader.cpu_s + model.cpu_s) if known else math.inf


def choose(loaders: Sequence[Loader], model: Model) -> Choice:
    """The simplest of those that are as good as the best, with the pixels of a full decode.

    Raises ValueError where there is none.
    """
    rates = [(loader, expected(loader, model)) for loader in loaders if not loader.scaled]
    enough = (1 - AS_GOOD) * max(rate for _, rate in rates)
    return min(
        (Choice(loader, rate) for loader, rate in rates if rate >= enough),
        key=lambda choice: (SIMPLER.index(choice.loader.decode), choice.loader.workers),
    )


def with_other_pixels(loaders: Sequence[Loader], model: Model, choice: Choice) -> Choice | None:
    """The best scaled decoding, where it gains on what was chosen; None: it does not."""
    scaled = [Choice(x, expected(x, model)) for x in loaders if x.scaled]
    best = max(scaled, key=lambda other: other.expected, default=None)
    return best if best and best.expected > (1 + AS_GOOD) * choice.expected else None


def overlap(loader: Loader, model: Model, run: Run) -> float:
    """The share of the shorter of loading and computing that ran beside the longer in `run`, 0 to
    1; each takes the time that it takes without the other."""
    loading_s, computing_s = 1 / loader.samples_per_s, 1 / model.samples_per_s
    hidden_s = loading_s + computing_s - 1 / run.samples_per_s
    return min(1.0, max(0.0, hidden_s / min(loading_s, computing_s)))
