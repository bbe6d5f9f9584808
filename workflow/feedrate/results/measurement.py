"""From the events of all ranks to one measurement. Samples are summed, the slowest rank counts."""

import json
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from feedrate.config.devices import Peak
from feedrate.config.spec import RunSpec
from feedrate.core.errors import LogError
from feedrate.jobs.events import RankEvents, Step, Window
from feedrate.logs.text import fallback_reason
from feedrate.results.checks import Observed
from feedrate.results.record import Ceilings, Measurement

Ranks = dict[int, RankEvents]


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """The keys of docs/architecture.md; what is not named here is passed over."""

    schema: Literal[1] = 1
    status: Literal["ok", "out_of_memory", "failed"]
    infrastructure: bool = False
    cause: str | None = ""
    exit_code: int | None = None
    attempt: int | None = 1
    command: str | list[str] | None = ""
    commit: str | None = ""
    source_digest: str | None = ""
    data_digest: str | None = ""
    spec_digest: str | None = ""
    started_at: str | None = ""
    ended_at: str | None = ""
    duration_s: float | None = None
    machine_before: dict[str, Any] | None = {}
    host_peak_memory_gib: float | None = None


def read_outcome(path: Path) -> Outcome | None:
    """Read outcome.json; None where the supervisor did not live to write it. Raises LogError."""
    try:
        return msgspec.convert(json.loads(path.read_bytes()), Outcome)
    except FileNotFoundError:
        return None
    except (ValueError, RecursionError) as error:
        raise LogError(f"{path}: not an outcome: {error}") from None


def measure(
    ranks: Ranks, spec: RunSpec, peaks: Sequence[Peak], host_peak_gib: float | None
) -> Measurement | None:
    """The measurement of a run, or None where no rank closed its window.

    The rate is samples over wall time, never a mean of rates. Step times are those of the
    slowest rank at each step, as the others wait for it; in inference, where none waits, those of
    all ranks. Waits are pooled over ranks.
    """
    windows = [events.window for events in ranks.values() if events.window]
    first = windows[0] if windows else None
    if first is None or min(w.wall_s for w in windows) <= 0:
        return None
    inside = {rank: _steps_in(events.steps, first) for rank, events in ranks.items()}
    times = _times(inside.values(), spec) or [max(w.wall_s for w in windows) / max(first.steps, 1)]
    samples = sum(w.samples for w in windows)
    wall_s = max(w.wall_s for w in windows)
    flops = flops_per_sample(ranks)
    flops_per_s = None if flops is None else flops * samples / wall_s / spec.count
    sheet, achievable = _peak_flops(peaks, spec.settings.train.precision)
    energy_j = _whole([w.energy_j for w in windows])
    losses = finite(losses_of(ranks))
    return Measurement(
        samples_per_s=samples / wall_s,
        samples=samples,
        wall_s=wall_s,
        steps=first.steps,
        warmup_steps=first.first_step - first_step(ranks),
        first_step_s=_first_step_s(ranks),
        step_time_median_s=quantile(times, 0.5),
        step_time_p95_s=quantile(times, 0.95),
        step_time_p99_s=quantile(times, 0.99),
        step_time_min_s=min(times),
        step_time_max_s=max(times),
        data_wait_s=_mean([w.data_wait_s for w in windows]),
        data_wait_share=_mean([w.data_wait_s / w.wall_s for w in windows]),
        data_wait_p95_s=_wait_p95(inside.values()),
        peak_memory_gib=_largest(w.peak_memory_gib for w in windows),
        memory_gib=_largest(w.memory_gib for w in windows),
        host_peak_memory_gib=host_peak_gib,
        allocator_retries=_total(w.allocator_retries for w in windows),
        energy_j=energy_j,
        energy_j_per_sample=energy_j and energy_j / samples,
        power_w=energy_j and energy_j / wall_s,
        loss_first=losses[0] if losses else None,
        loss_last=losses[-1] if losses else None,
        loss_end=_mean(losses[-max(5, len(losses) // 10) :]) if losses else None,
        mfu=flops_per_s / sheet if flops_per_s and sheet else None,
        mfu_achievable=flops_per_s / achievable if flops_per_s and achievable else None,
        tflops_per_device=None if flops_per_s is None else flops_per_s / 1e12,
        rank_wall_s=[w.wall_s for w in windows],
        paused_s=max(w.paused_s for w in windows),
    )


def ceilings(ranks: Ranks) -> Ceilings:
    """Loader, model and exchange alone: samples of all ranks over the slowest rank's time.

    None where a rank is missing, since a part of the ranks is no ceiling of the whole.
    """
    rates: dict[str, float | None] = {}
    for kind in ("loader", "model", "exchange"):
        parts = [c for events in ranks.values() for c in events.ceilings if c.kind == kind]
        wall_s = max((c.wall_s for c in parts), default=0.0)
        complete = len(parts) == len(ranks) and wall_s > 0
        rates[kind] = sum(c.samples for c in parts) / wall_s if complete else None
    return Ceilings(**{f"{kind}_samples_per_s": rate for kind, rate in rates.items()})


def step_sum(ranks: Ranks) -> float | None:
    """Sum of the step times inside the window of the rank whose window took longest, s."""
    slowest = max(
        (events for events in ranks.values() if events.window),
        key=lambda events: events.window.wall_s if events.window else 0.0,
        default=None,
    )
    if slowest is None or slowest.window is None:
        return None
    steps = _steps_in(slowest.steps, slowest.window)
    return sum(step.step_s for step in steps) if steps else None


def first_step(ranks: Ranks) -> int:
    """The first step that the job did itself: 1, or a later one where it was resumed."""
    return min((s.step for events in ranks.values() for s in events.steps), default=1)


def losses_of(ranks: Ranks) -> list[float]:
    """Every loss that the first rank reported, in order; not all need be finite."""
    steps = next((events.steps for _, events in sorted(ranks.items())), [])
    return [step.loss for step in steps if step.loss is not None]


def flops_per_sample(ranks: Ranks) -> float | None:
    """FLOPs of a sample, as the model's builder counts them: forward and backward, or in inference
    forward alone."""
    known = (events.model.flops_per_sample for events in ranks.values() if events.model)
    return next((flops for flops in known if flops), None)


def quantile(values: Sequence[float], share: float) -> float:
    """Quantile with linear interpolation (numpy's default) of a sequence that is not empty."""
    ordered = sorted(values)
    position = (len(ordered) - 1) * share
    below = math.floor(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (position - below)


def finite(values: Iterable[float]) -> list[float]:
    """The finite ones among `values`."""
    return [value for value in values if math.isfinite(value)]


def _steps_in(steps: Iterable[Step], window: Window) -> list[Step]:
    return [s for s in steps if window.first_step <= s.step <= window.last_step]


def _times(ranks: Iterable[list[Step]], spec: RunSpec) -> list[float]:
    """The longest time of each step over the ranks, or of each pass the time on each rank, s."""
    if spec.task == "inference":
        return [step.step_s for steps in ranks for step in steps]
    times: dict[int, float] = {}
    for step in (step for steps in ranks for step in steps):
        times[step.step] = max(step.step_s, times.get(step.step, 0.0))
    return [times[number] for number in sorted(times)]


def _wait_p95(ranks: Iterable[list[Step]]) -> float | None:
    waits = [step.data_wait_s for steps in ranks for step in steps]
    return quantile(waits, 0.95) if waits else None


def _first_step_s(ranks: Ranks) -> float | None:
    number = first_step(ranks)
    return _largest(s.step_s for events in ranks.values() for s in events.steps if s.step == number)


def _peak_flops(peaks: Sequence[Peak], precision: str) -> tuple[float | None, float | None]:
    """Data-sheet and achievable FLOP/s of one device at a precision, where known.

    Half precision in full multiplies as half precision by autocast does.
    """
    peak = next((p for p in peaks if p.precision == precision.removesuffix("_full")), None)
    known = (peak.datasheet_tflops, peak.achievable_tflops) if peak else (None, None)
    sheet, achievable = (None if value is None else value * 1e12 for value in known)
    return sheet, achievable


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _largest(values: Iterable[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)


def _whole(parts: Sequence[float | None]) -> float | None:
    """The sum, where no part is missing; a counter that never moves counts nothing."""
    known = [part for part in parts if part is not None]
    return sum(known) or None if len(known) == len(parts) else None


def _total(values: Iterable[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def observe(ranks: dict[int, RankEvents], outcome: Outcome | None, log: str) -> Observed:
    """What a run showed of itself, for the checks."""
    first = ranks.get(0, RankEvents())
    windows = {rank: events.window for rank, events in ranks.items() if events.window}
    reference = windows[min(windows)] if windows else None
    same = all(
        reference and (w.first_step, w.last_step) == (reference.first_step, reference.last_step)
        for w in windows.values()
    )
    starts = [events.start for events in ranks.values() if events.start]
    return Observed(
        ranks=list(windows),
        world_sizes=[start.world_size for start in starts],
        device_models=[start.device_model for start in starts if start.device_model],
        decode=first.data.decode if first.data else None,
        attention=first.model.attention if first.model else None,
        fallback=fallback_reason(log),
        data_digests=[e.data.digest for e in ranks.values() if e.data and e.data.digest],
        data_digest_asked=(outcome.data_digest if outcome else "") or "",
        losses=losses_of(ranks),
        answers_finite=_answers(ranks),
        rank_samples=[window.samples for window in windows.values()],
        job_first_step=first_step(ranks),
        first_step=reference.first_step if reference and same else None,
        last_step=reference.last_step if reference and same else None,
        step_sum_s=step_sum(ranks),
        **_strategy(first),
        other_training_jobs=_other_jobs(outcome),
    )


def _answers(ranks: dict[int, RankEvents]) -> list[bool]:
    """Of each forward pass that told it, whether its answer was finite."""
    steps = (step for events in ranks.values() for step in events.steps)
    return [step.finite for step in steps if step.finite is not None]


def _strategy(first: RankEvents) -> dict[str, Any]:
    """What the first rank told of how the work was shared; nothing where it told nothing."""
    told = first.strategy
    if told is None:
        return {}
    return {
        "strategy": told.name,
        "layers": told.layers,
        "sharded_layers": told.sharded_layers,
        "offloaded_layers": told.offloaded_layers,
        "checkpointed_layers": told.checkpointed_layers,
        "ddp": told.ddp,
        "fp32": told.fp32,
    }


def _other_jobs(outcome: Outcome | None) -> int | None:
    """A count or a list of them, as the supervisor wrote it."""
    value = ((outcome.machine_before if outcome else None) or {}).get("other_training_jobs")
    if isinstance(value, list):
        return len(value)
    return value if isinstance(value, int) else None
