"""Every measured value, declared once: a field of `Measurement`, `Ceilings`, `Stages`,
`PixelDistance` or `Provenance` with a `value`.

The record, the columns of the result files (`files.py`), the rows that the report reads and the
tables in docs/results.md follow from these fields. A field without a `value` is in the record only.
"""

from collections.abc import Iterator
from typing import Annotated, Any, Literal, NamedTuple, get_args

from msgspec import Meta, defstruct, inspect

from feedrate.config.spec import LoadingStage, Stage
from feedrate.config.values import Strict, about

Status = Literal["ok", "out_of_memory", "failed", "invalid", "missing", "unsupported"]
STATUSES: tuple[Status, ...] = get_args(Status)
"""Statuses of a run. A cell's status is the first of these among its runs."""
BAD: tuple[Status, ...] = ("failed", "invalid", "missing")
"""Statuses that are faults; the others are results."""
Kind = Literal["text", "integer", "number", "flag"]
Number = float | None
Repeats = Literal["median", "largest", "smallest", "same", "pooled", ""]


def value(unit: str, meaning: str, repeats: Repeats = "median") -> Meta:
    """The annotation of a measured value. `repeats`: how the ok runs of a cell combine in
    cells.csv; `same`: a value only where they have the same; `pooled`: an end of an interval
    (`over_runs`); empty: they do not."""
    return Meta(extra={"unit": unit, "meaning": meaning, "repeats": repeats})


class Measurement(Strict, kw_only=True):
    """The timed window of a run: warm-up steps left out, data loading inside. In inference a step
    is a forward pass, and its time is the latency of the answer."""

    samples_per_s: Annotated[float, value("samples/s", "Samples of all ranks divided by wall_s.")]
    step_time_median_s: Annotated[float, value("s", "Median time of a step, slowest rank.")]
    step_time_p95_s: Annotated[float, value("s", "95th percentile of the step times.")]
    step_time_p99_s: Annotated[Number, value("s", "99th percentile; from 100 steps on.")] = None
    first_step_s: Annotated[Number, value("s", "The very first step, with compilation.")] = None
    block_noise: Annotated[
        Number, value("share", "Standard error of the rate, from blocks of steps within the run.")
    ] = None
    data_wait_share: Annotated[float, value("share", "Wait for batches, mean of the ranks.")]
    copy_wait_share: Annotated[Number, value("share", "Copying batches, mean of the ranks.")] = None
    epoch_start_share: Annotated[
        Number, value("share", "Extra time of the first steps of epochs; empty: no epoch starts.")
    ] = None
    peak_memory_gib: Annotated[
        Number, value("GiB", "Peak memory of a device (cpu: of a process).", "largest")
    ] = None
    forward_memory_gib: Annotated[
        Number, value("GiB", "In use after a forward pass (cpu: resident).", "largest")
    ] = None
    host_peak_memory_gib: Annotated[
        Number, value("GiB", "Peak of all processes on the first host.", "largest")
    ] = None
    reserved_memory_gib: Annotated[
        Number, value("GiB", "Peak that CUDA's allocator reserved on a device.", "largest")
    ] = None
    allocator_retries: Annotated[
        int | None, value("", "Times that CUDA's allocator freed its cache.", "largest")
    ] = None
    energy_j: Annotated[Number, value("J", "Energy by all devices' counters.", "")] = None
    energy_j_per_sample: Annotated[Number, value("J", "energy_j divided by samples.")] = None
    power_w: Annotated[Number, value("W", "energy_j divided by wall_s, all devices.")] = None
    mfu: Annotated[
        Number, value("share", "Model FLOP/s, padding included, over the data sheet's peak.")
    ] = None
    mfu_real_tokens: Annotated[Number, value("share", "MFU without the padding of texts.")] = None
    mfu_achievable: Annotated[Number, value("share", "Model FLOP/s over achievable peak.")] = None
    tflops_per_device: Annotated[Number, value("TFLOP/s", "Model FLOP/s of one device.")] = None
    loss_first: Annotated[Number, value("", "Loss of the first step that reported one.", "")] = None
    loss_last: Annotated[Number, value("", "Loss of the last step that reported one.")] = None
    loss_end: Annotated[Number, value("", "Mean of the last tenth of losses (5 or more).")] = None
    loss_digest: Annotated[str, value("", "Digest of all reported losses, bit by bit.", "")] = ""
    skipped_updates: Annotated[
        int | None, value("", "Steps without an update: fp16 overflowed.", "largest")
    ] = None
    steps: Annotated[int, value("", "Optimizer steps, or passes, in the timed window.", "")]
    warmup_steps: Annotated[int, value("", "Optimizer steps before the window, left out.", "")]
    steps_per_epoch: Annotated[int | None, value("", "Steps in one epoch.", "smallest")] = None
    samples: Annotated[int, value("samples", "Samples of all ranks in the window.", "")]
    wall_s: Annotated[float, value("s", "Wall time of the window, slowest rank.", "")]
    paused_s: Annotated[float, value("s", "Checkpoints or pauses, not in wall_s.", "")] = 0.0
    device_busy_share: Annotated[Number, value("share", "Kernel time, least busy device.")] = None
    cores_busy_share: Annotated[
        Number, value("share", "CPU time of the job over the time of the cores granted to it.")
    ] = None
    cores_waited_share: Annotated[
        Number, value("share", "Share of runnable time that threads spent waiting for a core.")
    ] = None
    slow_rank: Annotated[int | None, value("", "Rank that takes longest by itself.", "same")] = None
    slow_rank_ratio_low: Annotated[
        Number, value("", "Lower end of the slow rank's time over the others' median.")
    ] = None
    accuracy_before: Annotated[
        Number, value("share", "Right answers on the test split, before training.")
    ] = None
    accuracy_after: Annotated[Number, value("share", "The same after training.")] = None
    evaluation_s: Annotated[
        Number, value("s", "Time of the evaluations before and after training, not in wall_s.")
    ] = None
    step_time_max_s: float  # this and the following are in the record only
    memory_gib: Number = None


Ratio = Annotated[Number, value("", "The part's rate over the live blocks' in the same rounds.")]
Low = Annotated[Number, value("", "Lower end of the 95% interval of the ratio.", "pooled")]
High = Annotated[Number, value("", "Upper end of the 95% interval of the ratio.", "pooled")]


class Ceilings(Strict, kw_only=True):
    """Rates of single parts in the same job. Blocks of `live` training alternate with blocks of
    each part; a ratio is between blocks of the same round, so drift cancels."""

    rounds: Annotated[int | None, value("", "Rounds of blocks after the window.", "")] = None
    live_samples_per_s: Annotated[Number, value("samples/s", "Training in the live blocks.")] = None
    loader_samples_per_s: Annotated[
        Number, value("samples/s", "Loader-only throughput (no model), all ranks.")
    ] = None
    loader_ratio: Ratio = None
    loader_ratio_low: Low = None
    loader_ratio_high: High = None
    model_samples_per_s: Annotated[
        Number, value("samples/s", "Model-only throughput (one batch, no loader), all ranks.")
    ] = None
    model_ratio: Ratio = None
    model_ratio_low: Low = None
    model_ratio_high: High = None
    exchange_samples_per_s: Annotated[
        Number, value("samples/s", "All-reduce throughput (nothing computed), all ranks.")
    ] = None
    exchange_ratio: Ratio = None
    exchange_ratio_low: Low = None
    exchange_ratio_high: High = None


FEEDING: tuple[Stage, ...] = (*get_args(LoadingStage), "hand_over", "copy")


def with_tails(kind: type["Stages"]) -> type["Stages"]:
    """Add to the stages in FEEDING the 95th percentile for one sample or batch, and CPU time."""
    fields: list[tuple[str, Any, None]] = []
    tail = value("s", "95th percentile of one sample (hand_over, copy: batch); empty below 20.")
    used = value("s", "CPU time of the stage per step, mean of the ranks.")
    for stage in FEEDING:
        fields.append((f"{stage}_p95_s", Annotated[Number, tail], None))
        if stage != "hand_over":
            fields.append((f"{stage}_cpu_s", Annotated[Number, used], None))
    return defstruct("Stages", fields, bases=(kind,), kw_only=True)  # type: ignore[return-value]


@with_tails
class Stages(Strict, kw_only=True):
    """Time of each stage per optimizer step, from live blocks after the window: `stage_<field>`.
    Those of the loader are sums over the processes of a rank; they overlap with the others."""

    open_s: Annotated[Number, value("s", "Loader: opening files.")] = None
    read_s: Annotated[Number, value("s", "Loader: reading files.")] = None
    decode_s: Annotated[Number, value("s", "Loader: decoding pictures.")] = None
    resize_s: Annotated[Number, value("s", "Loader: resizing pictures.")] = None
    tokenise_s: Annotated[Number, value("s", "Loader: looking up the texts' tokens.")] = None
    collate_s: Annotated[Number, value("s", "Loader: stacking samples into a batch.")] = None
    hand_over_s: Annotated[Number, value("s", "From a batch's completion to its receipt.")] = None
    copy_s: Annotated[Number, value("s", "Copying batches to the device.")] = None
    forward_s: Annotated[Number, value("s", "Forward pass.")] = None
    backward_s: Annotated[Number, value("s", "Backward pass.")] = None
    exchange_s: Annotated[Number, value("s", "Exchange of gradients, if not in backward.")] = None
    optimizer_s: Annotated[Number, value("s", "Update by the optimizer.")] = None
    not_split: Annotated[
        list[str],
        value("", "Stages that the loader cannot split from others, separated by `;`.", "same"),
    ] = []
    spans: dict[str, dict[str, Any]] = {}  # of the rank whose p95 is longest, in the record only


class PixelDistance(Strict, kw_only=True):
    """The model's pixels against those of `decode: reference`: `pixel_<field>` of the `data`
    event."""

    mean_abs_diff: Annotated[
        Number, value("levels", "Mean difference from `decode: reference`, of 255.", "largest")
    ] = None
    psnr_db: Annotated[Number, value("dB", "As PSNR; empty: pixels are equal.", "")] = None
    worst_abs_diff: Number = None  # of the picture that differs most


class Provenance(Strict, kw_only=True):
    """The code, data, machine and job that a number comes from."""

    cores_granted: Annotated[
        int | None, value("", "CPU cores that the job may use on a host.", "smallest")
    ] = None
    device_memory_gib: Annotated[
        Number, value("GiB", "Memory of a device as its driver reports it.", "smallest")
    ] = None
    trace: Annotated[
        str, value("", "File of the profiler's trace; what it lacks, or why there is none.", "same")
    ] = ""
    device_model: Annotated[str, value("", "Device model as the driver reports it.", "")] = ""
    bf16_instructions: Annotated[
        list[str],
        value("", "The CPU's bf16 instructions: amx_bf16, avx512_bf16, separated by `;`.", ""),
    ] = []
    host: Annotated[str, value("", "Host that the job ran on.", "")] = ""
    commit: Annotated[str, value("", "Commit of the project at the run.", "")] = ""
    source_digest: Annotated[str, value("", "Digest of the measured code.", "")] = ""
    data_digest: Annotated[str, value("", "Digest of the prepared data's manifest.", "")] = ""
    spec_digest: Annotated[str, value("", "Digest of spec.json.", "")] = ""
    started_at: Annotated[str, value("", "Start of the job, UTC, ISO 8601.", "")] = ""
    duration_s: Annotated[Number, value("s", "Time of the whole job, including set-up.", "")] = None
    attempt: Annotated[int, value("", "Which attempt of the run this was, from 1.", "")] = 1
    ended_at: str = ""  # this and the following are in the record only
    command: str = ""
    driver: str = ""
    weights_made_on: Annotated[str, about("Type of device that drew or read them.")] = ""
    cores_of_host: int | None = None
    intraop_threads: int | None = None
    host_memory_gib: float | None = None
    machine_before: Annotated[dict[str, Any], about("Load, clocks and the like before.")] = {}
    packages: dict[str, str] = {}
    firmware: dict[str, str] = {}
    environment: Annotated[dict[str, str], about("Variables that affect the speed.")] = {}
    python: str = ""
    platform: str = ""


class Value(NamedTuple):
    """A measured value, as the `field` of a `part` of the record declares it."""

    column: str  # its name in result files
    part: str
    field: str
    kind: Kind
    unit: str
    meaning: str
    repeats: Repeats


_KINDS: dict[type, Kind] = {inspect.FloatType: "number", inspect.IntType: "integer"}


def values_of(part: str, struct: type[Strict], prefix: str = "") -> Iterator[Value]:
    """The measured values that are fields of a struct."""
    for field in inspect.type_info(struct).fields:  # type: ignore[attr-defined]
        if isinstance(field.type, inspect.Metadata) and field.type.extra:
            declared = getattr(field.type.type, "types", (field.type.type,))[0]  # without None
            kind = _KINDS.get(type(declared), "text")
            yield Value(prefix + field.name, part, field.name, kind, **field.type.extra)


_TRAINERS = value("samples/s", "The Trainer's own rate; never mixed with ours.").extra or {}
VALUES = {
    measured.column: measured
    for measured in (
        *values_of("measurement", Measurement),
        Value("trainer_samples_per_s", "trainer", "samples_per_s", "number", **_TRAINERS),
        *values_of("ceilings", Ceilings),
        *values_of("stages", Stages, "stage_"),
        *values_of("pixels", PixelDistance, "pixel_"),
        *values_of("provenance", Provenance),
    )
}
"""All measured values by their column's name, in the order of the fields."""
