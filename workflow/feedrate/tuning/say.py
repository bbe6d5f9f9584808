"""The advice in words."""

from collections.abc import Iterator, Sequence

from feedrate.results.loader_model import Row
from feedrate.tuning.advice import (
    Choice,
    Loader,
    Model,
    Refused,
    Run,
    expected,
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
    for lacking in refused:
        yield f"{level(lacking)}: cannot be used: {lacking.why}"
    yield ""
    yield f"Use loader: {{{choice.loader.name}}}"
    yield f"Why: {why(choice, loaders, model)}"
    yield f"Expect: {rate(choice.expected)} samples/s. {told(choice, run)}"
    if other := with_other_pixels(loaders, model, choice):
        yield (
            f"Not chosen: {{{other.loader.name}}} would make {rate(other.expected)} samples/s, "
            f"with pixels {pixels(other.loader)} from the published script's, so another workload."
        )


def level(one: Loader | Refused) -> str:
    """A level as the table names it."""
    return f"{one.decode} scaled" if one.scaled else one.decode


def pixels(loader: Loader) -> str:
    """How near its pixels are to the reference's: peak signal to noise."""
    return "equal" if loader.psnr_db is None else f"{loader.psnr_db:.0f} dB"


def rate(samples_per_s: float) -> str:
    """Samples/s with four digits, never as a power of ten."""
    return f"{samples_per_s:.4g}" if samples_per_s < 1000 else f"{samples_per_s:,.0f}"


def why(choice: Choice, loaders: Sequence[Loader], model: Model) -> str:
    """What binds, and what was gained."""
    loader = choice.loader
    times = loader.samples_per_s / model.samples_per_s
    if loader.workers == 0 and loader.decode != "device":
        cost = 1 - choice.expected / model.samples_per_s
        text = f"without workers loading takes {cost:.1%} of a step"
    elif times >= 1 and shared(loader, model) <= choice.expected:
        both = loader.cpu_s + model.cpu_s
        text = (
            f"it loads {times:.3g} times what the model takes, but on the same "
            f"{model.cores:.3g} cores, of which loading needs {loader.cpu_s / both:.0%}"
        )
    elif times >= 1:
        text = f"it loads {times:.3g} times what the model takes, so the model alone decides"
    else:
        text = f"it loads {times:.0%} of what the model takes, and no level here loads more"
    plain = next((x for x in loaders if (x.decode, x.workers) == ("reference", 0)), None)
    if plain is None or loader is plain:
        return f"{text}."
    gain = choice.expected / expected(plain, model)
    return f"{text}; x{gain:.2f} against the published script's loading without workers."


def told(choice: Choice, run: Run) -> str:
    """The real run beside the expectation."""
    error = choice.expected / run.samples_per_s - 1
    text = f"A real run made {rate(run.samples_per_s)}: the expectation was {error:+.1%} off"
    hidden = overlap(choice.loader, run)
    if hidden is not None and (choice.loader.workers or choice.loader.decode == "device"):
        text += f"; {hidden:.0%} of loading and computing overlapped"
    return f"{text}."


def predictions(rows: Sequence[Row], with_device: Sequence[str]) -> Iterator[str]:
    """What the model that is fitted to published rates says of on-device decoding, where nobody
    printed a number: loading then costs the host nothing, so that only Tc is left.

    `rows` are those of fit.csv; `with_device` names the devices whose number was printed.
    """
    best: dict[tuple[str, str, int], Row] = {}
    for row in rows:
        key = (row["origin"], row["device"], row["world_size"])
        if row["device"] not in with_device:
            known = best.setdefault(key, row)
            if row["samples_per_s"] > known["samples_per_s"]:
                best[key] = row
    for (origin, device, count), row in best.items():
        best_case = count / row["tc_s"]
        yield (
            f"Prediction, not a measurement: {count} x {device} with decode: device would make "
            f"{rate(best_case)} samples/s, x{best_case / row['samples_per_s']:.2f} its best "
            f"{origin} rate ({row['loader_workers']} workers); the model's fit is up to "
            f"{row['max_error']:.1%} off."
        )
