"""Which loader to use, and why.

The expected throughput of training is the smaller of the loader's rate and the model's, and never
more than the host's cores can do of both. Scaled decoding makes other pixels, so it is never
recommended; its gain is mentioned.
"""

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from feedrate.config.settings import Decode
from feedrate.jobs.drain import Loader, Refused
from feedrate.results.fitting import predict

TOLERANCE = 0.02
"""Loaders within this share of the best are equally good; the simplest of them is used."""
SIMPLEST: tuple[Decode, ...] = ("host", "device", "cache", "reference")
"""From the simplest. The cache needs a store on the disk, and the reference is only for ratios."""


class Model(NamedTuple):
    """The model-only throughput of all ranks; for sharded ranks, that of training without its
    data wait."""

    samples_per_s: float
    cpu_s: float = 0.0
    """Host CPU seconds per sample; 0: unknown."""
    cores: float = math.inf
    """Host cores for all ranks and their workers."""


class Run(NamedTuple):
    """The throughput of a training run, all ranks."""

    samples_per_s: float
    without_wait_per_s: float
    """Samples/s of its steps without their data wait."""
    model: Model | None

    @property
    def computes_per_s(self) -> float:
        """The model's throughput in training: the smaller of its two measurements.

        A training step does more than the model alone; but where the host runs ahead of the device,
        part of the computing counts as data wait.
        """
        return min(self.model.samples_per_s if self.model else math.inf, self.without_wait_per_s)


class Choice(NamedTuple):
    """A loader with its expected throughput."""

    loader: Loader
    expected: float
    """Samples/s."""


def expected(loader: Loader, model: Model) -> float:
    """Expected samples/s of training with this loader."""
    tc_s = 1 / model.samples_per_s
    if in_turn(loader):
        return predict(0, tc_s, 1 / loader.samples_per_s)
    workers = max(1, loader.workers)
    return min(predict(workers, tc_s, workers / loader.samples_per_s), of_cores(loader, model))


def in_turn(loader: Loader) -> bool:
    """Whether the training process loads too, so that loading and computing alternate."""
    return loader.workers == 0 and loader.decode != "device"


def of_cores(loader: Loader, model: Model) -> float:
    """Samples/s that the host's cores can load and compute at the same time."""
    known = loader.cpu_s > 0 < model.cpu_s
    return model.cores / (loader.cpu_s + model.cpu_s) if known else math.inf


def choose(loaders: Sequence[Loader], model: Model) -> Choice:
    """The simplest of the best loaders with fully decoded pixels. Raises ValueError if there are
    none."""
    choices = [Choice(one, expected(one, model)) for one in loaders if not one.scaled]
    enough = (1 - TOLERANCE) * max(choice.expected for choice in choices)
    return min(
        (choice for choice in choices if choice.expected >= enough),
        key=lambda choice: (SIMPLEST.index(choice.loader.decode), choice.loader.workers),
    )


def better_scaled(loaders: Sequence[Loader], model: Model, choice: Choice) -> Choice | None:
    """The best scaled decoding, if it is faster than the choice."""
    scaled = [Choice(one, expected(one, model)) for one in loaders if one.scaled]
    best = max(scaled, key=lambda other: other.expected, default=None)
    return best if best and best.expected > (1 + TOLERANCE) * choice.expected else None


def overlap(loader: Loader, model: Model, run: Run) -> float:
    """How much of the shorter of loading and computing `run` hid behind the longer, 0 to 1."""
    loading_s, computing_s = 1 / loader.samples_per_s, 1 / model.samples_per_s
    hidden_s = loading_s + computing_s - 1 / run.samples_per_s
    return min(1.0, max(0.0, hidden_s / min(loading_s, computing_s)))


def advice(
    loaders: Sequence[Loader],
    refused: Sequence[Refused],
    model: Model,
    choice: Choice,
    run: Run,
) -> Iterator[str]:
    """Lines: what was measured, which loader to use, why, and what to expect. `run` used it."""
    yield f"{'decode':12} {'workers':>7} {'alone':>9} {'expected':>9} {'start':>8} {'pixels':>8}"
    yield f"{'':12} {'':>7} {'samples/s':>9} {'samples/s':>9} {'s':>8}"
    for loader in loaders:
        yield (
            f"{level(loader):12} {loader.workers:7} {rate(loader.samples_per_s):>9} "
            f"{rate(expected(loader, model)):>9} {loader.startup_s:8.2g} {pixels(loader):>8}"
        )
    measured = {level(one) for one in loaders}
    for one in refused:
        failed = f"failed with {one.workers} workers" if level(one) in measured else "does not work"
        yield f"{level(one)} {failed}: {one.why}"
    yield ""
    yield f"Use loader: {{{choice.loader.name}}}"
    yield f"Why: {why(choice, loaders, model)}."
    error = choice.expected / run.samples_per_s - 1
    text = f"Expect: {rate(choice.expected)} samples/s. A training run reached "
    text += f"{rate(run.samples_per_s)}, so the expectation is {error:+.1%} off"
    if not in_turn(choice.loader):
        text += f"; {overlap(choice.loader, model, run):.0%} of loading and computing overlapped"
    yield f"{text}."
    if other := better_scaled(loaders, model, choice):
        yield (
            f"Not recommended: {{{other.loader.name}}} would reach {rate(other.expected)} "
            f"samples/s, but its pixels are not the published script's ({pixels(other.loader)})."
        )


def model_line(device: str, plain: Run, in_loop: float, *, sharded: bool) -> str:
    """The model's throughput, and how it was measured in the `plain` run; samples/s."""
    if sharded or plain.model is None:
        return (
            f"On {device}, the model reaches {rate(in_loop)} samples/s in training steps without "
            "their data wait (sharded ranks cannot compute alone)."
        )
    alone = plain.model.samples_per_s
    line = f"On {device}, the model alone reaches {rate(alone)} samples/s"
    if in_loop < alone:
        line += f", and {rate(in_loop)} in training steps without their data wait, which is used"
    return f"{line}."


def why(choice: Choice, loaders: Sequence[Loader], model: Model) -> str:
    """What limits the throughput, and the gain over the published script's loading."""
    text = limit(choice, loaders, model)
    plain = next((one for one in loaders if (one.decode, one.workers) == ("reference", 0)), None)
    if plain is None or choice.loader is plain:
        return text
    gain = choice.expected / expected(plain, model)
    return f"{text}; x{gain:.2f} relative to the published script's loading without workers"


def limit(choice: Choice, loaders: Sequence[Loader], model: Model) -> str:
    """What limits the throughput."""
    loader = choice.loader
    if in_turn(loader):
        share = 1 - choice.expected / model.samples_per_s
        return f"without workers, loading takes {share:.1%} of a step"
    ratio = loader.samples_per_s / model.samples_per_s
    text = f"loading reaches {ratio:.3g} times" if ratio >= 1 else f"loading reaches {ratio:.0%} of"
    text += " the model's rate"
    if of_cores(loader, model) <= choice.expected:
        share = loader.cpu_s / (loader.cpu_s + model.cpu_s)
        return f"{text}, but both share {model.cores:.3g} cores, of which loading needs {share:.0%}"
    if ratio >= 1:
        return f"{text}, so the model is the limit"
    if any(one.samples_per_s > loader.samples_per_s and not one.scaled for one in loaders):
        return f"{text}, and faster loaders gain less than {TOLERANCE:.0%}"
    return f"{text}, and no loader here is faster"


def level(one: Loader | Refused) -> str:
    """The decoding level of a row."""
    return f"{one.decode} scaled" if one.scaled else one.decode


def pixels(loader: Loader) -> str:
    """The similarity of its pixels to the reference's, as peak signal-to-noise ratio."""
    return "equal" if loader.psnr_db is None else f"{loader.psnr_db:.0f} dB"


def rate(samples_per_s: float) -> str:
    """Samples/s with four digits, never as a power of ten."""
    return f"{samples_per_s:.4g}" if samples_per_s < 1000 else f"{samples_per_s:,.0f}"
