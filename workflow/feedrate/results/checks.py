"""The gates that a run's numbers pass before they count."""

import math
from collections.abc import Callable
from typing import NamedTuple

from feedrate.config.devices import is_called
from feedrate.config.settings import Task
from feedrate.config.spec import RunSpec
from feedrate.config.values import Strict
from feedrate.results.record import Check, Measurement
from feedrate.results.settings import DeviceFacts

# What the gates look at: what was asked for, and what a run showed of itself.


class Observed(Strict, kw_only=True):
    """What a run showed of itself, to be held against what was asked for."""

    ranks: list[int]
    world_sizes: list[int] = []
    device_models: list[str] = []
    decode: str | None = None
    fallback: str | None = None
    data_digests: list[str] = []
    data_digest_asked: str = ""
    losses: list[float] = []
    answers_finite: list[bool] = []
    rank_samples: list[int] = []
    job_first_step: int = 1
    first_step: int | None = None
    last_step: int | None = None
    step_sum_s: float | None = None
    other_training_jobs: int | None = None
    attention: str | None = None
    strategy: str | None = None
    layers: int = 0
    sharded_layers: int = 0
    offloaded_layers: int = 0
    checkpointed_layers: int = 0
    ddp: dict[str, float | bool] | None = None
    fp32: str | None = None


class Evidence(NamedTuple):
    """All that a check may look at."""

    spec: RunSpec
    measurement: Measurement
    observed: Observed
    device: DeviceFacts


Finding = tuple[bool, str]
"""Whether a gate is passed, and a sentence."""


def listed(values: object) -> str:
    """Values in a sentence."""
    return ", ".join(map(str, values))  # type: ignore[call-overload]


# Gates on the numbers themselves: identities that hold in every honest measurement.

STEP_SUM_TOLERANCE = 0.05
"""Share by which the sum of the step times may differ from the window's wall time."""
STEP_SUM_SLACK_S = 0.1
"""And seconds: one synchronisation at each end of the window lies outside the steps."""
POWER_TOLERANCE = 1.2
"""Times its rated power that a device may be found to take: counters are off by some percent."""


def window(e: Evidence) -> Finding:
    """The window is the one that the protocol asks for."""
    protocol, seen = e.spec.protocol, e.observed
    # A resumed job warms up again before its window opens.
    first, last = seen.job_first_step + protocol.warmup_steps, protocol.steps
    if (seen.first_step, seen.last_step, e.measurement.steps) != (first, last, last - first + 1):
        return False, (
            f"The window is steps {seen.first_step} to {seen.last_step} "
            f"({e.measurement.steps} counted), asked for {first} to {last}."
        )
    return True, f"The window is steps {first} to {last}, after {protocol.warmup_steps} warm-up."


def samples(e: Evidence) -> Finding:
    """Samples are steps x batch x accumulation, on each rank."""
    train, m = e.spec.settings.train, e.measurement
    a_rank = m.steps * train.batch_size * train.gradient_accumulation
    expected = a_rank * e.spec.count
    sum_up = (
        f"{m.steps} steps x {train.batch_size} x {train.gradient_accumulation} "
        f"x {e.spec.count} ranks = {expected} samples"
    )
    if e.spec.settings.loader.last_batch == "keep":
        # The last batch of an epoch may be smaller, or padded to the others' size.
        return 0 < m.samples <= expected, f"At most {sum_up}; {m.samples} were counted."
    if m.samples != expected:
        return False, f"{sum_up}, but {m.samples} were counted."
    if any(samples != a_rank for samples in e.observed.rank_samples):
        return (
            False,
            f"{a_rank} samples a rank expected, counted {listed(e.observed.rank_samples)}.",
        )
    return True, f"{sum_up}, as counted."


def step_sum(e: Evidence) -> Finding:
    """The steps fill the window."""
    total, wall = e.observed.step_sum_s, e.measurement.wall_s
    if total is None:
        return False, "No step times to hold the window against."
    off = abs(total - wall)
    passed = off <= STEP_SUM_TOLERANCE * wall + STEP_SUM_SLACK_S
    return passed, f"The steps sum up to {total:.4g} s, the window took {wall:.4g} s."


def loss(e: Evidence) -> Finding:
    """Losses are finite, and the model still learns."""
    losses = e.observed.losses
    if not losses:
        return False, "No loss was reported."
    bad = [loss for loss in losses if not math.isfinite(loss)]
    if bad:
        return False, f"{len(bad)} of {len(losses)} losses are not finite."
    if losses[-1] == 0:
        return False, "The last loss is exactly 0: the model learns nothing any more."
    return True, f"All {len(losses)} losses are finite, the last is {losses[-1]:.4g}."


def answers(e: Evidence) -> Finding:
    """Each forward pass answered in finite numbers."""
    told, expected = e.observed.answers_finite, e.spec.protocol.steps * e.spec.count
    if len(told) != expected:
        return False, f"{len(told)} of {expected} forward passes told what they answered."
    bad = told.count(False)
    if bad:
        return False, f"{bad} of {expected} answers are not finite."
    return True, f"All {expected} answers are finite."


def mfu(e: Evidence) -> Finding:
    """No device does more than its peak."""
    m = e.measurement
    known = [("data-sheet", m.mfu), ("achievable", m.mfu_achievable)]
    name, share = next(((n, s) for n, s in known if s is not None), ("", None))
    if share is None:
        return True, "No peak is known for this device and precision."
    return share <= 1, f"MFU is {share:.1%} of the {name} peak."


def power(e: Evidence) -> Finding:
    """No device takes much more than it is rated for."""
    used_w, rated_w = e.measurement.power_w, e.device.power_w
    if used_w is None or rated_w is None:
        return True, "Energy was not counted, or no rated power is known."
    allowed_w = rated_w * e.spec.count
    said = f"The devices took {used_w:.4g} W on average, rated for {allowed_w:.4g} W."
    return used_w <= POWER_TOLERANCE * allowed_w, said


# Gates on what was run: it must be what was asked for.


def all_ranks(e: Evidence) -> Finding:
    """Every rank closed a window."""
    missing = sorted(set(range(e.spec.count)) - set(e.observed.ranks))
    if missing:
        return False, f"No timed window from rank {listed(missing)} of {e.spec.count}."
    return True, f"All {e.spec.count} ranks reported."


def world_size(e: Evidence) -> Finding:
    """Each rank saw as many as were asked for."""
    wrong = sorted(set(e.observed.world_sizes) - {e.spec.count})
    if wrong or not e.observed.world_sizes:
        said = listed(wrong) if wrong else "nothing"
        return False, f"The world size is {said}, asked for {e.spec.count}."
    return True, f"The world size is {e.spec.count}, as asked for."


def device_model(e: Evidence) -> Finding:
    """The device is the one of the registry."""
    pattern, models = e.device.model_pattern, sorted(set(e.observed.device_models))
    said = listed(models) or "nothing"
    if pattern is None:
        return True, f"The device registry asks for no model; found {said}."
    if not models or not all(is_called(model, pattern) for model in models):
        return False, f"The device says it is {said}, the registry asks for /{pattern}/."
    return True, f"The device is {said}, as registered."


def decode(e: Evidence) -> Finding:
    """Images were decoded where they were asked to be."""
    asked, used = e.spec.settings.loader.decode, e.observed.decode
    if e.observed.fallback is not None:
        return False, (
            f"The log says `Using Pytorch native dataloader because: {e.observed.fallback}`: "
            "decoding on the device was given up for the host."
        )
    if used != asked:
        return False, f"decode: {asked} was asked for, used was {used or 'not said'}."
    return True, f"Images were decoded as asked for: {asked}."


def attention(e: Evidence) -> Finding:
    """The attention kernel is the one asked for."""
    asked, run = e.spec.settings.model.attention, e.observed.attention
    if run not in (None, asked):
        return False, f"attention: {asked} was asked for, {run} was run."
    return True, f"Attention was {asked}, as asked for."


def strategy(e: Evidence) -> Finding:
    """The ranks shared their work as they were asked to."""
    asked, seen = e.spec.settings.train.strategy, e.observed
    if seen.strategy is None:
        plain = asked != "fsdp" and not e.spec.settings.model.checkpointing
        return plain, f"The strategy {asked} was asked for; what ran was not said."
    if (e.spec.count > 1 or asked == "fsdp") and seen.strategy != asked:
        return False, f"The strategy {asked} was asked for, {seen.strategy} was run."
    told = {
        "sharded": (asked == "fsdp", seen.sharded_layers),
        "offloaded": (e.spec.settings.train.cpu_offload, seen.offloaded_layers),
        "checkpointed": (e.spec.settings.model.checkpointing, seen.checkpointed_layers),
    }
    for what, (wanted, count) in told.items():
        expected = seen.layers if wanted else 0
        if count != expected or (wanted and not count):
            return False, f"{count} of {seen.layers} layers were {what}, asked for {expected}."
    for name, used in (seen.ddp or {}).items() if e.spec.kind != "hpu" else ():
        chosen = getattr(e.spec.settings.train, name)
        if chosen is not None and used != chosen:
            return False, f"train.{name}: {chosen} was asked for, {used} was used."
    return True, f"The work was shared by {seen.strategy}, as asked for."


def fp32(e: Evidence) -> Finding:
    """Single precision is single precision."""
    used = e.observed.fp32
    if used not in (None, "ieee"):
        return False, f"Single precision was asked for, {used} was computed in its place."
    return True, "fp32 is single precision."


def data(e: Evidence) -> Finding:
    """The data are those of the manifest."""
    asked, used = e.observed.data_digest_asked, sorted(set(e.observed.data_digests))
    if not asked:
        return True, "No data digest was asked for."
    if used != [asked]:
        seen = listed(digest[:12] for digest in used) or "no digest"
        return False, f"Data with digest {asked[:12]} were asked for, {seen} was read."
    return True, f"The data have digest {asked[:12]}, as asked for."


def alone(e: Evidence) -> Finding:
    """No other job of feedrate ran on the host at the start: no training, scoring or draining."""
    others = e.observed.other_training_jobs
    if others is None:
        return True, "Other jobs of feedrate on the host were not looked for."
    if others:
        return False, f"Other jobs of feedrate ran on the host at the start: {others}."
    return True, "No other job of feedrate ran on the host at the start."


CHECKS: dict[str, Callable[[Evidence], Finding]] = {
    "all_ranks_reported": all_ranks,
    "world_size": world_size,
    "window_after_warmup": window,
    "samples_identity": samples,
    "step_times_sum": step_sum,
    "loss_finite": loss,
    "answers_finite": answers,
    "mfu_at_most_100_percent": mfu,
    "power_within_rating": power,
    "device_model": device_model,
    "decode_path": decode,
    "attention": attention,
    "strategy": strategy,
    "fp32": fp32,
    "data_digest": data,
    "alone_on_host": alone,
}
"""By name, in the order in which they are reported."""
ONLY_OF: dict[str, Task] = {
    "loss_finite": "training",
    "strategy": "training",
    "fp32": "training",
    "answers_finite": "inference",
}
"""Checks of one task alone: forward passes have no loss, and their ranks exchange nothing."""


def check_run(evidence: Evidence) -> list[Check]:
    """Every check of the run's task with its name, whether it is passed, and a sentence."""
    task = evidence.spec.task
    return [
        Check(name=name, passed=passed, detail=detail)
        for name, check in CHECKS.items()
        if ONLY_OF.get(name, task) == task
        for passed, detail in [check(evidence)]
    ]
