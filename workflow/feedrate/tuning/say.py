"""The advice in words."""

from collections.abc import Iterator, Sequence

from feedrate.tuning.advice import (
    AS_GOOD,
    Choice,
    Loader,
    Model,
    Refused,
    Run,
    expected,
    in_turn,
    overlap,
    shared,
    with_other_pixels,
)


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
