"""The record: the one checked JSON document that a run ends in."""

import math
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from feedrate.config.spec import RunSpec
from feedrate.config.values import Level, Strict
from feedrate.core.errors import ExpectedError
from feedrate.core.files import write_json
from feedrate.logs.trainer import TrainerFigures

RECORD_SCHEMA = 1
"""Version of `Record`; raise it when a field changes its meaning."""

Status = Literal["ok", "out_of_memory", "failed", "invalid", "unsupported"]


BAD: tuple[Status, ...] = ("failed", "invalid")
"""What is a fault; the other statuses are results."""


class RecordError(ExpectedError):
    """A file that is no record; the message names it."""


class Measurement(Strict, kw_only=True):
    """What the meter saw in the timed window (warm-up steps left out, data loading inside).

    In inference a step is a forward pass, and its time the latency of its answer.

    Over ranks: samples are summed, wall time is the slowest rank's.
    """

    samples_per_s: Annotated[float, Meta(description="Samples of all ranks over wall_s.")]
    samples: Annotated[int, Meta(description="Samples of all ranks in the window.")]
    wall_s: Annotated[float, Meta(description="Wall time of the slowest rank's window, s.")]
    steps: Annotated[int, Meta(description="Optimizer steps, or passes, in the window.")]
    warmup_steps: int
    first_step_s: Annotated[float | None, Meta(description="The very first step, s.")] = None
    step_time_median_s: float
    step_time_p95_s: float
    step_time_p99_s: float | None = None
    step_time_min_s: float
    step_time_max_s: float
    data_wait_s: Annotated[float, Meta(description="Wait for batches in the window, mean rank, s.")]
    data_wait_share: Annotated[
        float, Meta(description="data_wait_s over wall time, mean of ranks.")
    ]
    data_wait_p95_s: float | None = None
    peak_memory_gib: Annotated[
        float | None,
        Meta(description="Device memory at its peak, largest rank; on cpu the process's RSS, GiB."),
    ] = None
    memory_gib: Annotated[float | None, Meta(description="Memory at the window's end, GiB.")] = None
    host_peak_memory_gib: Annotated[
        float | None,
        Meta(
            description="Peak memory of the job's processes on its first host together, what they "
            "share counted once (PSS), sampled, GiB."
        ),
    ] = None
    allocator_retries: Annotated[
        int | None,
        Meta(
            description="Times that CUDA's allocator gave memory back and asked again, all ranks."
        ),
    ] = None
    energy_j: Annotated[
        float | None,
        Meta(
            description="Energy of the job's devices in the window, by their own counters; on cpu "
            "of the processors' packages, J."
        ),
    ] = None
    energy_j_per_sample: float | None = None
    power_w: Annotated[
        float | None, Meta(description="energy_j over wall_s: all devices together, W.")
    ] = None
    loss_first: float | None = None
    loss_last: float | None = None
    loss_end: Annotated[
        float | None,
        Meta(description="Mean of the last tenth of the losses reported, of five at least."),
    ] = None
    mfu: Annotated[
        float | None, Meta(description="Model FLOPs over the data-sheet peak, share (0 to 1).")
    ] = None
    mfu_achievable: Annotated[
        float | None, Meta(description="The same over the achievable peak.")
    ] = None
    tflops_per_device: float | None = None
    rank_wall_s: Annotated[list[float], Meta(description="Window of each rank, s.")] = []
    paused_s: Annotated[
        float, Meta(description="Checkpoints and evaluations inside the window, taken out, s.")
    ] = 0.0


class Ceilings(Strict, kw_only=True):
    """The loader with no model, the model with no loader, and the exchange of gradients with
    neither, in the same job (all ranks)."""

    loader_samples_per_s: float | None = None
    model_samples_per_s: float | None = None
    exchange_samples_per_s: float | None = None


class PixelDistance(Strict, kw_only=True):
    """What the model was given, against what the reference path makes of the same files."""

    mean_abs_diff: Annotated[float | None, Meta(description="Levels of 0 to 255.")] = None
    psnr_db: Annotated[
        float | None, Meta(description="Peak signal-to-noise ratio; null: no difference at all.")
    ] = None


class Check(Strict, kw_only=True):
    """A gate that the numbers pass before they count."""

    name: str
    passed: bool
    detail: str


class Provenance(Strict, kw_only=True):
    """Where a number comes from."""

    commit: str = ""
    source_digest: str = ""
    data_digest: str = ""
    spec_digest: str = ""
    command: str = ""
    started_at: Annotated[str, Meta(description="UTC, ISO 8601.")] = ""
    ended_at: str = ""
    duration_s: float | None = None
    attempt: int = 1
    host: str = ""
    device_model: str = ""
    driver: str = ""
    cores_granted: Annotated[
        int | None, Meta(description="On a host, by affinity and cgroup, not by cpu_count.")
    ] = None
    cores_of_host: int | None = None
    intraop_threads: int | None = None
    host_memory_gib: float | None = None
    bf16_instructions: Annotated[
        list[str],
        Meta(description="Instructions for bf16 that the CPU has: amx_bf16, avx512_bf16."),
    ] = []
    machine_before: Annotated[
        dict[str, Any], Meta(description="Load, clocks and the like before the run.")
    ] = {}
    packages: dict[str, str] = {}
    python: str = ""
    platform: str = ""


class MadeFrom(Strict, kw_only=True):
    """What a record was made from; where this has changed, the record is made again."""

    parser: Annotated[str, Meta(description="Digest of the code that read the logs.")] = ""
    device: Annotated[str, Meta(description="Digest of the registry's facts on the device.")] = ""
    files: Annotated[
        dict[str, str], Meta(description="SHA-256 of each log, by its path in the run's folder.")
    ] = {}


class Record(Strict, kw_only=True):
    """results/<study>/<device>/<cell>/rep<k>/record.json."""

    schema_version: int = RECORD_SCHEMA
    study: str
    device: str
    cell: str
    levels: dict[str, Level]
    repeat: int
    status: Status
    cause: Annotated[str, Meta(description="Why it is not ok; of an ok run, a note.")] = ""
    spec: RunSpec | None = None
    model_parameters: int | None = None
    flops_per_sample: Annotated[
        float | None,
        Meta(
            description="Forward + backward (inference: forward), 2 per multiply-add, no "
            "recomputation."
        ),
    ] = None
    measurement: Measurement | None = None
    ceilings: Ceilings = Ceilings()
    pixels: PixelDistance = PixelDistance()
    trainer: TrainerFigures = TrainerFigures()
    evaluation: Annotated[dict[str, float], Meta(description="eval_* and predict_* figures.")] = {}
    checks: list[Check] = []
    provenance: Provenance = Provenance()
    made_from: MadeFrom = MadeFrom()


def write_record(path: Path, record: Record) -> None:
    """Write a record atomically; the same record always gives the same bytes.

    JSON has no NaN: where the free-form state of the machine holds one, it becomes null.
    """
    write_json(path, _finite(msgspec.to_builtins(record)))


def read_record(path: Path) -> Record:
    """Read a record. Raises RecordError where it is none, or of another version."""
    try:
        record = msgspec.json.decode(path.read_bytes(), type=Record)
    except FileNotFoundError:
        raise RecordError(f"{path}: no such file") from None
    except ValueError as error:
        raise RecordError(f"{path}: not a record of this version: {error}") from None
    if record.schema_version != RECORD_SCHEMA:
        raise RecordError(
            f"{path}: schema_version {record.schema_version} is not allowed; this version of "
            f"feedrate reads {RECORD_SCHEMA} (remove the file, and it is made again from its logs)"
        )
    return record


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
