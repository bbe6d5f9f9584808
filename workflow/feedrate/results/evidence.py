"""What the gates look at: what was asked for, and what a run showed of itself."""

from typing import NamedTuple

from feedrate.config.base import Strict
from feedrate.config.settings import RunSpec
from feedrate.results.record import Measurement
from feedrate.results.settings import DeviceFacts


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
