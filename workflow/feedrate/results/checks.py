"""The gates that a run's numbers pass before they count."""

from collections.abc import Callable

from feedrate.config.inference import Task
from feedrate.results import number_checks, setting_checks
from feedrate.results.evidence import Evidence, Finding
from feedrate.results.record import Check

CHECKS: dict[str, Callable[[Evidence], Finding]] = {
    "all_ranks_reported": setting_checks.all_ranks,
    "world_size": setting_checks.world_size,
    "window_after_warmup": number_checks.window,
    "samples_identity": number_checks.samples,
    "step_times_sum": number_checks.step_sum,
    "loss_finite": number_checks.loss,
    "answers_finite": number_checks.answers,
    "mfu_at_most_100_percent": number_checks.mfu,
    "power_within_rating": number_checks.power,
    "device_model": setting_checks.device_model,
    "decode_path": setting_checks.decode,
    "attention": setting_checks.attention,
    "strategy": setting_checks.strategy,
    "fp32": setting_checks.fp32,
    "data_digest": setting_checks.data,
    "alone_on_host": setting_checks.alone,
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
