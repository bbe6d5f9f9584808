"""One measurement from the events of all ranks: sum of samples, time of the slowest rank."""

import hashlib
import math
from collections.abc import Iterable, Sequence
from itertools import pairwise
from statistics import fmean, median
from typing import Any

import numpy as np

from feedrate.config.devices import Peak
from feedrate.config.spec import RunSpec
from feedrate.jobs import events as run_events
from feedrate.jobs.events import Evaluation, Step, Window
from feedrate.results.parts import Ranks, busy_shares, of_known, slow_rank
from feedrate.results.record import Score
from feedrate.results.schema import Measurement
from feedrate.results.statistics import block_noise, paired_interval

ACCURACIES = ("matching_accuracy", "accuracy")
"""The score that stands for a model: of a pair of images and texts, and of a classifier."""


def measure(
    ranks: Ranks, spec: RunSpec, peaks: Sequence[Peak], host_peak_gib: float | None
) -> Measurement | None:
    """The measurement of a run; None where no rank closed its window. The rate is never a mean of
    rates. A step takes as long as on its slowest rank; in inference, all ranks' steps count."""
    windows = list(windows_of(ranks).values())
    if not windows or min(w.wall_s for w in windows) <= 0:
        return None
    first, events = windows[0], ranks.values()
    steps = [_steps_in(e.steps, first) for e in events]  # by rank
    samples, wall_s = sum(w.samples for w in windows), max(w.wall_s for w in windows)
    # A sum needs the energy of all ranks, and a counter that never moves counts nothing.
    energies = [w.energy_j for w in windows if w.energy_j is not None]
    energy_j = sum(energies) or None if len(energies) == len(windows) else None
    times = _times(steps, spec) or [wall_s / max(first.steps, 1)]
    copy_shares = (w.copy_wait_s and w.copy_wait_s / w.wall_s for w in windows)
    first_steps = [step.step_s for e in events for step in e.steps if step.step == 1]
    rows = next((e.data.samples for e in events if e.data and e.data.samples), None)
    return Measurement(
        samples=samples,
        wall_s=wall_s,
        paused_s=max(w.paused_s for w in windows),
        samples_per_s=samples / wall_s,
        steps=first.steps,
        warmup_steps=first.first_step - 1,
        steps_per_epoch=rows // spec.step_samples if rows and spec.task == "training" else None,
        first_step_s=max(first_steps, default=None),
        step_time_median_s=median(times),
        step_time_p95_s=float(np.quantile(times, 0.95)),
        step_time_p99_s=float(np.quantile(times, 0.99)) if len(times) >= 100 else None,
        step_time_max_s=max(times),
        block_noise=block_noise(times),
        data_wait_share=fmean(w.data_wait_s / w.wall_s for w in windows),
        copy_wait_share=of_known(fmean, copy_shares),
        epoch_start_share=of_known(max, map(_epoch_starts, steps)),
        memory_gib=of_known(max, (w.memory_gib for w in windows)),
        peak_memory_gib=of_known(max, (w.peak_memory_gib for w in windows)),
        reserved_memory_gib=of_known(max, (w.reserved_memory_gib for w in windows)),
        allocator_retries=of_known(sum, (w.allocator_retries for w in windows)),
        forward_memory_gib=of_known(max, (e.stages.forward_memory_gib for e in events if e.stages)),
        host_peak_memory_gib=host_peak_gib,
        energy_j=energy_j,
        energy_j_per_sample=energy_j and energy_j / samples,
        power_w=energy_j and energy_j / wall_s,
        **busy_shares(ranks),
        **slow_rank(ranks),
        skipped_updates=_skipped_updates(ranks, first),
        **_losses(ranks),
        **_accuracy(ranks),
        **_utilisation(ranks, samples, wall_s, spec, peaks),
    )


def windows_of(ranks: Ranks) -> dict[int, Window]:
    """The timed windows by rank, of the ranks that closed theirs."""
    return {rank: events.window for rank, events in ranks.items() if events.window}


def step_sum(ranks: Ranks) -> float | None:
    """Sum of the step times in the window, on the rank whose window took longest, s."""
    windows = windows_of(ranks)
    if not windows:
        return None
    slowest = max(windows, key=lambda rank: windows[rank].wall_s)
    steps = _steps_in(ranks[slowest].steps, windows[slowest])
    return sum(step.step_s for step in steps) if steps else None


def losses_of(ranks: Ranks) -> list[float]:
    """Every loss that the first rank reported, in order; some may not be finite."""
    steps = ranks[min(ranks)].steps if ranks else []
    return [step.loss for step in steps if step.loss is not None]


def flops_per_sample(ranks: Ranks, name: str = "flops_per_sample") -> float | None:
    """FLOPs of a sample as the model's builder counts them: forward and backward, or in inference
    forward alone. `name` is the key of the `model` event: with or without padding."""
    known = (getattr(events.model, name) for events in ranks.values() if events.model)
    return next((flops for flops in known if flops), None)


def _steps_in(steps: Iterable[Step], window: Window) -> list[Step]:
    return [s for s in steps if window.first_step <= s.step <= window.last_step]


def _epoch_starts(steps: Sequence[Step]) -> float | None:
    """Share of a rank's time that the first steps of epochs take beyond the others' median, also to
    start workers and to copy memory shared by forks. None if no step or each starts an epoch."""
    others = [step.step_s for step in steps if not step.starts_epoch]
    if not others or len(others) == len(steps):
        return None
    usual_s = median(others)
    extra_s = sum(step.step_s - usual_s for step in steps if step.starts_epoch)
    return max(0.0, extra_s) / sum(step.step_s for step in steps)


def _skipped_updates(ranks: Ranks, window: Window) -> int | None:
    """Steps of the window that lowered the loss scale of fp16, which all ranks share; the scale
    before a run's first step is not known."""
    steps = ranks[min(ranks)].steps
    if not any(step.loss_scale for step in steps):
        return None
    skipped = 0
    for before, step in pairwise(steps):
        is_inside = window.first_step <= step.step <= window.last_step
        skipped += is_inside and (step.loss_scale or 0.0) < (before.loss_scale or 0.0)
    return skipped


def _times(ranks: Iterable[list[Step]], spec: RunSpec) -> list[float]:
    """The longest time of each step over the ranks, or in inference all times on all ranks, s."""
    steps = [step for own in ranks for step in own]
    if spec.task == "inference":
        return [step.step_s for step in steps]
    times: dict[int, float] = {}
    for step in steps:
        times[step.step] = max(step.step_s, times.get(step.step, 0.0))
    return [times[number] for number in sorted(times)]


def _losses(ranks: Ranks) -> dict[str, Any]:
    losses = [loss for loss in losses_of(ranks) if math.isfinite(loss)]
    if not losses:
        return {}
    return {
        "loss_first": losses[0],
        "loss_last": losses[-1],
        "loss_end": fmean(losses[-max(5, len(losses) // 10) :]),
        "loss_digest": hashlib.sha256(repr(losses).encode()).hexdigest()[:16],
    }


def scores(evaluations: Iterable[Evaluation]) -> list[Score]:
    """The scores of a model before and after training, side by side."""
    moments: dict[tuple[str, str], dict[str, run_events.Score]] = {}
    for evaluation in evaluations:
        for score in evaluation.scores:
            moments.setdefault((score.on, score.metric), {})[evaluation.moment] = score
    rows = []
    for (on, metric), scores_of in moments.items():
        values: dict[str, Any] = {}
        for moment, score in scores_of.items():
            values |= {"n": sum(score.of), "chance": score.chance}
            values[moment] = sum(score.right) / sum(score.of) if score.of else None
        if len(scores_of) == 2:
            before, after = scores_of["before"], scores_of["after"]
            interval = paired_interval(before.right, after.right, after.of)
            values["gain_low"], values["gain_high"] = interval
        rows.append(Score(on=on, metric=metric, **values))
    return rows


def _accuracy(ranks: Ranks) -> dict[str, Any]:
    """The accuracy on the test split before and after training, and the time of both."""
    evaluations = ranks[0].evaluations if 0 in ranks else []
    if not evaluations:
        return {}
    values: dict[str, Any] = {"evaluation_s": sum(e.seconds or 0.0 for e in evaluations)}
    for score in scores(evaluations):
        if score.on == "test" and score.metric in ACCURACIES:
            values |= {"accuracy_before": score.before, "accuracy_after": score.after}
            break
    return values


def _utilisation(
    ranks: Ranks, samples: int, wall_s: float, spec: RunSpec, peaks: Sequence[Peak]
) -> dict[str, Any]:
    """FLOP/s of one device, and their share of its known peaks at the precision; full half
    precision multiplies as autocast's does."""
    flops = flops_per_sample(ranks)
    if flops is None:
        return {}
    values = {"tflops_per_device": flops * samples / wall_s / spec.count / 1e12}
    precision = spec.settings.train.precision.removesuffix("_full")
    peak = next((p for p in peaks if p.precision == precision), None)
    if peak and peak.achievable_tflops:
        values["mfu_achievable"] = values["tflops_per_device"] / peak.achievable_tflops
    if peak and peak.datasheet_tflops:
        values["mfu"] = values["tflops_per_device"] / peak.datasheet_tflops
        real_flops = flops_per_sample(ranks, "flops_per_real_sample")
        if real_flops:
            values["mfu_real_tokens"] = values["mfu"] * real_flops / flops
    return values
