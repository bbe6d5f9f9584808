"""Which loader to use: `min(loader rate, model rate)` by the same model that a study fits, and
no more than the host's cores can do of both together.

Scaled decoding makes other pixels, so it is never chosen: where it gains, that is told beside.
"""

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from feedrate.config.settings import Decode
from feedrate.jobs.drain import Loader, Refused
from feedrate.results.fitting import predict

AS_GOOD = 0.02
"""What comes within this share of the best is as good: then the simpler is used."""
SIMPLER: tuple[Decode, ...] = ("host", "device", "cache", "reference")
"""The cache needs a store on the disk; the reference is the base of all ratios, not a choice."""


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


# The advice in words.


def model_takes(device: str, plain: Run, in_loop: float, *, sharded: bool) -> str:
    """What the model takes, and how that is known from the `plain` run; samples/s."""
    start = f"Loaders on {device}; the model"
    if sharded or plain.model is None:
        why = "its steps without their waiting for data: sharded ranks cannot compute apart"
        return f"{start} takes {rate(in_loop)} samples/s ({why})."
    alone = f"alone takes {rate(plain.model.samples_per_s)} samples/s"
    if in_loop >= plain.model.samples_per_s:
        return f"{start} {alone}."
    return (
        f"{start} {alone}, and {rate(in_loop)} in the training loop (its steps without their "
        "waiting for data), which counts here."
    )


def advice(
    loaders: Sequence[Loader],
    refused: Sequence[Refused],
    model: Model,
    choice: Choice,
    run: Run,
) -> Iterator[str]:
    """Lines: what was measured, what to use, why, what to expect, and how far that was off."""
    yield f"{'decode':12} {'workers':>7} {'alone':>9} {'expected':>9} {'start':>8} {'pixels':>8}"
    yield f"{'':12} {'':>7} {'samples/s':>9} {'samples/s':>9} {'s':>8}"
    for loader in loaders:
        yield (
            f"{level(loader):12} {loader.workers:7} {rate(loader.samples_per_s):>9} "
            f"{rate(expected(loader, model)):>9} {loader.startup_s:8.2g} "
            f"{pixels(loader):>8}"
        )
    yield from (without(lacking, loaders) for lacking in refused)
    yield ""
    yield f"Use loader: {{{choice.loader.name}}}"
    yield f"Why: {why(choice, loaders, model)}"
    yield f"Expect: {rate(choice.expected)} samples/s. {told(choice, model, run)}"
    if other := with_other_pixels(loaders, model, choice):
        yield (
            f"Not chosen: {{{other.loader.name}}} would make {rate(other.expected)} samples/s, "
            f"with pixels {pixels(other.loader)} from the published script's, so another workload."
        )


def level(one: Loader | Refused) -> str:
    """A level as the table names it."""
    return f"{one.decode} scaled" if one.scaled else one.decode


def without(lacking: Refused, loaders: Sequence[Loader]) -> str:
    """A level that cannot be had, or not with as many workers."""
    measured = [one for one in loaders if level(one) == level(lacking)]
    if not measured:
        return f"{level(lacking)}: cannot be used: {lacking.why}"
    return f"{level(lacking)} with {lacking.workers} workers failed: {lacking.why}"


def pixels(loader: Loader) -> str:
    """How near its pixels are to the reference's: peak signal to noise."""
    return "equal" if loader.psnr_db is None else f"{loader.psnr_db:.0f} dB"


def rate(samples_per_s: float) -> str:
    """Samples/s with four digits, never as a power of ten."""
    return f"{samples_per_s:.4g}" if samples_per_s < 1000 else f"{samples_per_s:,.0f}"


def why(choice: Choice, loaders: Sequence[Loader], model: Model) -> str:
    """What binds, and what was gained."""
    loader = choice.loader
    text = binds(choice, loaders, model)
    plain = next((x for x in loaders if (x.decode, x.workers) == ("reference", 0)), None)
    if plain is None or loader is plain:
        return f"{text}."
    gain = choice.expected / expected(plain, model)
    return f"{text}; x{gain:.2f} against the published script's loading without workers."


def binds(choice: Choice, loaders: Sequence[Loader], model: Model) -> str:
    """What keeps the rate where it is."""
    loader = choice.loader
    times = loader.samples_per_s / model.samples_per_s
    loads = f"it loads {times:.3g} times" if times >= 1 else f"it loads {times:.0%} of"
    if in_turn(loader):
        cost = 1 - choice.expected / model.samples_per_s
        return f"without workers loading takes {cost:.1%} of a step"
    if shared(loader, model) <= choice.expected:
        share = loader.cpu_s / (loader.cpu_s + model.cpu_s)
        cores = f"on the same {model.cores:.3g} cores, of which loading needs {share:.0%}"
        return f"{loads} what the model takes, but {cores}"
    if times >= 1:
        return f"{loads} what the model takes, so the model alone decides"
    more = [x for x in loaders if not x.scaled and x.samples_per_s > loader.samples_per_s]
    rest = f"what loads more gains less than {AS_GOOD:.0%}" if more else "no level here loads more"
    return f"{loads} what the model takes, and {rest}"


def told(choice: Choice, model: Model, run: Run) -> str:
    """The real run beside the expectation."""
    error = choice.expected / run.samples_per_s - 1
    text = f"A real run made {rate(run.samples_per_s)}: the expectation was {error:+.1%} off"
    if not in_turn(choice.loader):
        hidden = overlap(choice.loader, model, run)
        text += f"; {hidden:.0%} of loading and computing overlapped"
    return f"{text}."
