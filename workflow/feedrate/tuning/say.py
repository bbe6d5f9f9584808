"""The advice in words."""

from collections.abc import Iterator, Sequence

from feedrate.results.loader_model import Row
from feedrate.tuning.advice import Choice, Loader, Refused, Run, expected, overlap


def advice(
    device: str,
    loaders: Sequence[Loader],
    refused: Sequence[Refused],
    model_samples_per_s: float,
    choice: Choice,
    run: Run,
) -> Iterator[str]:
    """Lines: what was measured, what to use, why, what to expect, and how far that was off."""
    yield f"Loaders on {device}; the model alone takes {model_samples_per_s:.4g} samples/s."
    yield f"{'decode':10} {'workers':>7} {'samples/s alone':>16} {'expected':>9} {'start, s':>9}"
    for loader in loaders:
        yield (
            f"{loader.decode:10} {loader.workers:7} {loader.samples_per_s:16.4g} "
            f"{expected(loader, model_samples_per_s):9.4g} {loader.startup_s:9.2g}"
        )
    for level in refused:
        yield f"{level.decode}: not here: {level.why}"
    yield ""
    yield f"Use loader: {{{choice.loader.name}}}"
    yield f"Why: {why(choice, loaders, model_samples_per_s)}"
    yield f"Expect: {choice.expected:.4g} samples/s. {told(choice, run)}"


def why(choice: Choice, loaders: Sequence[Loader], model_samples_per_s: float) -> str:
    """What binds, and what was gained."""
    loader = choice.loader
    times = loader.samples_per_s / model_samples_per_s
    if loader.workers == 0 and loader.decode != "device":
        cost = 1 - choice.expected / model_samples_per_s
        text = f"without workers loading takes {cost:.1%} of a step"
    elif times >= 1:
        text = f"it loads {times:.3g} times what the model takes, so the model alone decides"
    else:
        text = f"it loads {times:.0%} of what the model takes, and no level here loads more"
    plain = next((x for x in loaders if (x.decode, x.workers) == ("reference", 0)), None)
    if plain is None or loader is plain:
        return f"{text}."
    gain = choice.expected / expected(plain, model_samples_per_s)
    return f"{text}; x{gain:.2f} against the published script's loading without workers."


def told(choice: Choice, run: Run) -> str:
    """The real run beside the expectation."""
    error = choice.expected / run.samples_per_s - 1
    text = f"A real run made {run.samples_per_s:.4g}: the expectation was {error:+.1%} off"
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
        rate = count / row["tc_s"]
        yield (
            f"Prediction, not a measurement: {count} x {device} with decode: device would make "
            f"{rate:.4g} samples/s, x{rate / row['samples_per_s']:.2f} of its best {origin} rate "
            f"({row['loader_workers']} workers)."
        )
