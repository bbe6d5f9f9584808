"""Forward passes, one after the other, each timed until its answer is on the host."""

from collections.abc import Mapping
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import torch

from feedrate.config.settings import RunSpec
from feedrate.devices.base import Adapter
from feedrate.infer.requests import Requests
from feedrate.models.build import Head
from feedrate.train.events import EventLog


@dataclass(frozen=True)
class Timed:
    """One pass."""

    took_s: float
    prepared_s: float
    """Of it, until the batch was handed to the model."""
    finite: bool
    """Whether the answer is made of finite numbers alone."""


def time_passes(
    spec: RunSpec, device: Adapter, log: EventLog, model: Any, head: Head, requests: Requests
) -> None:
    """Write a `step` event for each pass, and the `window` of those after the warm-up.

    The window's time is the sum of its passes: what lies between them (events are written, answers
    looked at) is told as `paused_s`.
    """
    protocol, size = spec.protocol, spec.settings.train.batch_size
    timed: list[Timed] = []
    device.synchronize()
    device.reset_peak()
    origin_s = opened_s = perf_counter()
    for number in range(1, protocol.steps + 1):
        if number == protocol.warmup_steps + 1:
            opened_s = perf_counter()
        one = _time_pass(device, model, head, requests, spec.settings.train.precision)
        now_gib, peak_gib = device.memory()
        log.write(
            "step",
            step=number,
            t_s=perf_counter() - origin_s,
            step_s=one.took_s,
            data_wait_s=one.prepared_s,
            samples=size,
            loss=None,
            finite=one.finite,
            memory_gib=now_gib,
            peak_memory_gib=peak_gib,
            warmup=number <= protocol.warmup_steps,
        )
        timed.append(one)
    inside = timed[protocol.warmup_steps :]
    wall_s = sum(one.took_s for one in inside)
    log.write(
        "window",
        first_step=protocol.warmup_steps + 1,
        last_step=protocol.steps,
        steps=len(inside),
        samples=len(inside) * size,
        wall_s=wall_s,
        data_wait_s=sum(one.prepared_s for one in inside),
        paused_s=perf_counter() - opened_s - wall_s,
        memory_gib=now_gib,
        peak_memory_gib=peak_gib,
        allocator_retries=device.allocator_retries(),
    )


@torch.inference_mode()
def _time_pass(
    device: Adapter, model: Any, head: Head, requests: Requests, precision: str
) -> Timed:
    start_s = perf_counter()
    batch = requests()
    prepared_s = perf_counter() - start_s
    with device.autocast(precision):
        outputs: Mapping[str, torch.Tensor] = model(**batch, **head.arguments)
    answers = [outputs[name].to("cpu") for name in head.answers]
    device.synchronize()  # what the answer does not need is work of the pass too
    took_s = perf_counter() - start_s
    finite = all(bool(answer.isfinite().all()) for answer in answers)
    return Timed(took_s, prepared_s, finite)
