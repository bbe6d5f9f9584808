"""The advice of `tune`: the loader to use and why, and the gain of on-device decoding elsewhere.

The expected throughput of training is the smaller of the loader's and the model's, and never more
than the host's cores can do of both. Scaled decoding makes different pixels, so it is never
recommended; its gain is mentioned.
"""

import math
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from feedrate.config.settings import Decode
from feedrate.core import variables
from feedrate.core.files import write_text
from feedrate.jobs.accelerator import BUSY
from feedrate.jobs.drain import Loader, Refused
from feedrate.results.files import Row
from feedrate.results.loader_model import fit_rows, predict
from feedrate.results.params import FitSettings
from feedrate.results.statistics import rate_text

TOLERANCE = 0.02
"""Loaders within this share of the best are equally good; the simplest of them is used."""
SIMPLEST: tuple[Decode, ...] = ("host", "device", "cache", "reference")
"""From the simplest. The cache needs a store on the disk; the reference only serves for ratios."""


class Model(NamedTuple):
    """The model-only throughput of all ranks; of sharded ranks, training without its data wait."""

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
        """The model's throughput in training: the smaller of two measurements, as a step does more
        than the model only, but data wait may hide computing where the host runs ahead."""
        return min(self.model.samples_per_s if self.model else math.inf, self.without_wait_per_s)


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


def choose(loaders: Sequence[Loader], model: Model) -> Loader:
    """The simplest of the best loaders with fully decoded pixels. Raises ValueError without any."""
    full = [one for one in loaders if not one.scaled]
    enough = (1 - TOLERANCE) * max(expected(one, model) for one in full)
    best = [one for one in full if expected(one, model) >= enough]
    return min(best, key=lambda one: (SIMPLEST.index(one.decode), one.workers))


def better_scaled(loaders: Sequence[Loader], model: Model, choice: Loader) -> Loader | None:
    """The fastest loader with scaled decoding, if it is faster than the choice."""
    enough = (1 + TOLERANCE) * expected(choice, model)
    scaled = [one for one in loaders if one.scaled and expected(one, model) > enough]
    return max(scaled, key=lambda one: expected(one, model), default=None)


def overlap(loader: Loader, model: Model, run: Run) -> float:
    """How much of the shorter of loading and computing `run` hid behind the longer, 0 to 1."""
    loading_s, computing_s = 1 / loader.samples_per_s, 1 / model.samples_per_s
    hidden_s = loading_s + computing_s - 1 / run.samples_per_s
    return min(1.0, max(0.0, hidden_s / min(loading_s, computing_s)))


def advice(
    loaders: Sequence[Loader], refused: Sequence[Refused], model: Model, choice: Loader, run: Run
) -> Iterator[str]:
    """What was measured, which loader to use, why, and what to expect; `run` used that loader."""
    yield "decode       workers loader-only  expected    start   pixels"
    yield "                       samples/s samples/s        s"
    for loader in loaders:
        yield (
            f"{level(loader):12} {loader.workers:7} {rate_text(loader.samples_per_s):>11} "
            f"{rate_text(expected(loader, model)):>9} {loader.startup_s:8.2g} {pixels(loader):>8}"
        )
    measured = {level(one) for one in loaders}
    for one in refused:
        failed = f"failed with {one.workers} workers" if level(one) in measured else "does not work"
        yield f"{level(one)} {failed}: {one.why}"
    yield ""
    yield f"Use loader: {{{choice.name}}}"
    yield f"Why: {why(choice, loaders, model)}."
    found = expected(choice, model)
    error = found / run.samples_per_s - 1
    text = f"Expect: {rate_text(found)} samples/s. A training run reached "
    text += f"{rate_text(run.samples_per_s)}, so the expectation is {error:+.1%} off"
    if not in_turn(choice):
        text += f"; {overlap(choice, model, run):.0%} of loading and computing overlapped"
    yield f"{text}."
    if other := better_scaled(loaders, model, choice):
        yield (
            f"Not recommended: {{{other.name}}} would reach {rate_text(expected(other, model))} "
            f"samples/s, but its pixels are not the published script's ({pixels(other)})."
        )


def model_line(device: str, plain: Run, in_loop: float, *, sharded: bool) -> str:
    """The model's throughput, and how it was measured in the `plain` run; samples/s."""
    if sharded or plain.model is None:
        return (
            f"On {device}, the model reaches {rate_text(in_loop)} samples/s in training steps, "
            "data wait excluded (sharded ranks have no model-only measurement)."
        )
    model_only = plain.model.samples_per_s
    line = f"On {device}, the model-only throughput is {rate_text(model_only)} samples/s"
    if in_loop < model_only:
        line += f"; its rate in training steps without data wait is used, {rate_text(in_loop)}"
    return f"{line}."


def cores_of_loading(devices: int, loader: Loader, model: Model) -> float:
    """Cores of loading that keep one device busy `BUSY` of the time; 0: not known."""
    return BUSY * model.samples_per_s / devices * loader.cpu_s


def cores_line(devices: int, loader: Loader, model: Model) -> str:
    """The cores per device, and where to ask about devices that are not here."""
    found = cores_of_loading(devices, loader, model)
    busy = f"{found:.2g} for loading, if it is busy {BUSY:.0%} of the time"
    return (
        f"Cores per device: {busy if found else 'not known'}. How many other accelerators this "
        "host feeds: make certify DEVICE=name MODEL=name-size"
    )


def why(choice: Loader, loaders: Sequence[Loader], model: Model) -> str:
    """The limit of the throughput, and the gain over the published script's loading."""
    text = limit(choice, loaders, model)
    plain = next((one for one in loaders if (one.decode, one.workers) == ("reference", 0)), None)
    if plain is None or choice is plain:
        return text
    gain = expected(choice, model) / expected(plain, model)
    return f"{text}; x{gain:.2f} relative to the published script's loading without workers"


def limit(loader: Loader, others: Sequence[Loader], model: Model) -> str:
    """The limit of the throughput with this loader."""
    if in_turn(loader):
        share = 1 - expected(loader, model) / model.samples_per_s
        return f"without workers, loading takes {share:.1%} of a step"
    ratio = loader.samples_per_s / model.samples_per_s
    text = f"loading reaches {ratio:.3g} times" if ratio >= 1 else f"loading reaches {ratio:.0%} of"
    text += " the model's rate"
    if of_cores(loader, model) <= expected(loader, model):
        share = loader.cpu_s / (loader.cpu_s + model.cpu_s)
        return f"{text}, but both share {model.cores:.3g} cores, and loading needs {share:.0%}"
    if ratio >= 1:
        return f"{text}, so the model is the limit"
    if any(one.samples_per_s > loader.samples_per_s and not one.scaled for one in others):
        return f"{text}, and faster loaders gain less than {TOLERANCE:.0%}"
    return f"{text}, and no loader here is faster"


def level(one: Loader | Refused) -> str:
    """The decoding level of a row."""
    return f"{one.decode} scaled" if one.scaled else one.decode


def pixels(loader: Loader) -> str:
    """How close its pixels are to the reference's: peak signal-to-noise ratio."""
    return "equal" if loader.psnr_db is None else f"{loader.psnr_db:.0f} dB"


# The gain of on-device decoding for published devices. Loading then costs the host nothing, so the
# loader model, fitted to published rates, predicts the throughput from Tc only.


def predict_published(published: FitSettings, out: Path) -> None:
    """Write predictions for published devices with decoding on the device to `out`, a text."""
    write_lines(predictions(published), out)


def write_lines(lines: Iterable[str], out: Path) -> None:
    """Write lines of advice, and print them if no call waits for them, which prints them itself."""
    text = "".join(f"{line}\n" for line in lines)
    write_text(out, text)
    if not os.environ.get(variables.ADVICE_LATER):
        print(text, end="", flush=True)


def predictions(settings: FitSettings) -> Iterator[str]:
    """A line per edition and device without a published rate, with its prediction, if the fit has a
    conclusion; then a line per published rate of the same edition, with its prediction's error."""
    best: dict[tuple[str, str, int], Row] = {
        (row["origin"], row["device"], row["world_size"]): row
        for row in sorted(fit_rows([], settings), key=lambda row: row["samples_per_s"])
    }
    published = [
        row
        for study in settings.studies.values()
        for row in study.published
        if "device" in row.levels.values() and row.metric == "samples_per_s"
    ]

    def devices(device: str, count: int) -> str:
        return f"{count} x {settings.labels.get(device, device)}"

    for (origin, device, count), row in best.items():
        if device in {one.device for one in published}:
            continue
        if row["reading"]:
            yield _prediction(devices(device, count), count / row["tc_s"], row, origin)
        else:
            yield (
                f"No prediction for {devices(device, count)} with decode: device: the loader model "
                f"does not fit its {origin} rates."
            )
    for one in published:
        row = best.get((f"published {one.edition}", one.device, one.count), {})
        if row.get("reading"):
            found = one.count / row["tc_s"]
            yield (
                f"The same prediction for {devices(one.device, one.count)} is {rate_text(found)} "
                f"samples/s; {one.value:,g} were published ({found / one.value - 1:+.1%})."
            )


def _prediction(devices: str, found: float, row: Row, origin: str) -> str:
    best = f"its best {origin} rate ({row['loader_workers']} workers)"
    gain = found / row["samples_per_s"]
    compared = f"x{gain:.2f} {best}"
    if gain <= 1 + row["max_error"]:
        compared = f"no more than {best}, where training no longer waits for data"
    return (
        f"Prediction, not a measurement: {devices} with decode: device would reach "
        f"{rate_text(found)} samples/s, {compared}. The model fits that device's published "
        f"rates within {row['max_error']:.1%}."
    )
