"""What defines one job: its settings, and the spec that is its identity."""

import json
import os
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Literal

from msgspec import Meta

from feedrate.config.base import Count, Level, Name, Natural, Positive, Share, Strict
from feedrate.config.hpu import HpuSettings
from feedrate.config.inference import InferenceSettings, Task
from feedrate.core import plugins, variables

# What the training processes of a device run in.


class Software(Strict, kw_only=True):
    """What the training processes of a device run in, on top of the job's own environment."""

    python: Annotated[
        str | None,
        Meta(description="Interpreter of the training processes; null: Snakemake's own."),
    ] = None
    modules: Annotated[
        list[str], Meta(description="Environment modules to load first (`module load`).")
    ] = []
    environment: Annotated[
        dict[str, str], Meta(description="Environment variables to set for the processes.")
    ] = {}
    container: Annotated[
        str | None,
        Meta(description="Apptainer image (a file or docker://…) that the processes run in."),
    ] = None


SPEC_SCHEMA = 1
"""Version of `RunSpec`; raise it when a field changes its meaning (all runs are then redone)."""

if TYPE_CHECKING:
    Kind = str
    Launcher = str
else:
    Kind = Literal[plugins.names("feedrate.devices.kinds")]
    Launcher = Literal[plugins.names("feedrate.devices.launchers")]


MODELS = ("bridgetower", "clip", "flava", "vit")
"""Modules of feedrate.models that build one; add a model here."""


class ModelSettings(Strict, kw_only=True):
    """The model that is trained."""

    name: Annotated[
        Name, Meta(description="Builder in feedrate.models: bridgetower, clip, flava, vit.")
    ]
    size: Annotated[Name, Meta(description="Size known to the builder: tiny, base, large, …")]
    checkpoint: Annotated[
        str | None,
        Meta(description="Hub id or folder with safetensors weights; null: random weights."),
    ] = None
    revision: Annotated[
        str | None, Meta(description="Commit, tag or branch of a hub checkpoint.")
    ] = None
    attention: Annotated[
        Literal["eager", "sdpa", "flash"],
        Meta(description="Step by step; torch's fused one; only its flash kernel (vit)."),
    ] = "eager"
    checkpointing: Annotated[
        bool, Meta(description="Layers compute their activations again in the backward pass.")
    ] = False
    image_px: Annotated[
        Count | None, Meta(description="Side of the images (vit); null: the size's own.")
    ] = None
    head: Annotated[
        Literal["token", "pooled"],
        Meta(description="What a classifier reads: a class token, or the patches' mean (vit)."),
    ] = "token"
    layout: Annotated[
        Literal["batch_first", "batch_second"],
        Meta(description="Order of batch and tokens between the layers (vit)."),
    ] = "batch_first"


Decode = Literal["reference", "host", "cache", "device"]
"""The levels of decoding; data/loading/registry.py says what makes the batches of each."""


class LoaderSettings(Strict, kw_only=True):
    """How samples reach the device."""

    decode: Annotated[
        Decode,
        Meta(
            description="How JPEG files become pixels: as in the published script; fast, on the "
            "host; once, in preprocessing; on the device."
        ),
    ] = "reference"
    scaled_decode: Annotated[
        bool,
        Meta(
            description="host and cache: the decoder shrinks by a power of two first; faster, and "
            "not equal to a full decode."
        ),
    ] = False
    random_crop: Annotated[
        Share,
        Meta(
            description="Smallest share of a picture's area that a random crop keeps; 0: the "
            "centre is cropped."
        ),
    ] = 0.0
    random_flip: Annotated[bool, Meta(description="Mirror every other picture, by chance.")] = False
    colour_jitter: Annotated[
        Share,
        Meta(description="Brightness, contrast and saturation vary by up to this; 0: not at all."),
    ] = 0.0
    fetch: Annotated[
        Literal["sample", "batch"] | None,
        Meta(
            description="Whether a loader makes samples that are stacked, or whole batches; null: "
            "samples for reference, else batches."
        ),
    ] = None
    transfer: Annotated[
        Literal["uint8", "float32"] | None,
        Meta(
            description="What reaches the device: uint8, normalised there, or float32; null: "
            "float32 for reference (which has no other), else uint8."
        ),
    ] = None
    workers: Annotated[
        Natural,
        Meta(
            description="Data-loader worker processes per rank; with decode: device, host threads "
            "that read files."
        ),
    ] = 0
    prefetch_factor: Annotated[Count, Meta(description="Batches each worker keeps ready.")] = 2
    persistent_workers: Annotated[
        bool, Meta(description="Workers outlive an epoch (off, as in the published script).")
    ] = False
    pin_memory: Annotated[
        bool, Meta(description="Page-locked host memory (used on cuda and hpu only).")
    ] = True
    start_method: Annotated[
        Literal["fork", "spawn", "forkserver"], Meta(description="How workers are started.")
    ] = "fork"
    oversubscribe: Annotated[
        bool,
        Meta(description="More workers than a rank has cores run too; off: such a run is refused."),
    ] = False
    threads_per_worker: Annotated[
        Count, Meta(description="Threads of torch in a worker; workers never have more than cores.")
    ] = 1
    non_blocking: Annotated[
        bool,
        Meta(
            description="The next batch is copied to the GPU without waiting for it (hpu: its own "
            "setting)."
        ),
    ] = False
    timeout_s: Annotated[
        Positive,
        Meta(description="A worker or a device's decoder that makes no batch for so long hangs."),
    ] = 600.0
    last_batch: Annotated[
        Literal["drop", "keep"],
        Meta(description="An epoch's incomplete batch; keep: smaller (hpu in lazy mode: padded)."),
    ] = "drop"
    max_tokens: Annotated[Count, Meta(description="Captions are padded or cut to this.")] = 128
    label: Annotated[
        Name, Meta(description="Column whose values are the classes of a classifier (vit).")
    ] = "contest_number"


class TrainSettings(Strict, kw_only=True):
    """How the model is trained."""

    batch_size: Annotated[Count, Meta(description="Samples per device and micro-step.")] = 48
    eval_batch_size: Annotated[
        Count | None, Meta(description="The same in evaluation; null: as batch_size.")
    ] = None
    gradient_accumulation: Annotated[Count, Meta(description="Micro-steps per step.")] = 1
    memory_gib: Annotated[
        Positive | None,
        Meta(description="Memory that a rank on a cpu may take beyond its programs; null: all."),
    ] = None
    precision: Annotated[
        Literal["fp32", "bf16", "fp16", "fp8", "bf16_full", "fp16_full"],
        Meta(
            description="bf16 and fp16 are autocast with fp32 master weights; fp8: bf16 with the "
            "layers' matrix multiplications in fp8; _full: weights, gradients and optimizer "
            "states too."
        ),
    ] = "bf16"
    execution: Annotated[
        Literal["eager", "compiled", "cuda_graphs"],
        Meta(description="torch.compile, or with its steps replayed as graphs (hpu: hpu.mode)."),
    ] = "eager"
    strategy: Annotated[
        Literal["ddp", "fast_ddp", "fsdp"], Meta(description="How gradients are synchronised.")
    ] = "ddp"
    limit_all_gathers: Annotated[
        bool | None,
        Meta(description="Of PyTorch's first FSDP; null: the second, which has no such choice."),
    ] = None
    cpu_offload: Annotated[
        bool,
        Meta(
            description="fsdp: weights, gradients and optimizer states rest in the host's memory, "
            "and the optimizer steps there; for one device too."
        ),
    ] = False
    learning_rate: Annotated[Positive, Meta(description="Peak learning rate.")] = 1e-5
    learning_rate_warmup_steps: Annotated[
        Natural,
        Meta(description="Optimizer steps in which it rises from zero; then it falls, to zero."),
    ] = 0
    optimizer: Annotated[
        Name,
        Meta(description="`optim` of TrainingArguments; or adamw_torch_loop, adamw_torch_foreach."),
    ] = "adamw_torch"
    ddp_bucket_mb: Annotated[
        Count | None,
        Meta(description="Gradients are exchanged in buckets of this size; null: torch's 25 MB."),
    ] = None
    ddp_static_graph: Annotated[
        bool, Meta(description="DDP takes the graph of every step to be that of the first.")
    ] = False
    ddp_bucket_view: Annotated[
        bool, Meta(description="Gradients are views of DDP's buckets: no copies, less memory.")
    ] = False
    logging_steps: Annotated[
        Count, Meta(description="Every so many steps the Trainer logs, and waits for the loss.")
    ] = 10


class Protocol(Strict, kw_only=True):
    """How a run is measured."""

    steps: Annotated[Count, Meta(description="Optimizer steps in all, warm-up included.")]
    warmup_steps: Annotated[
        Count,
        Meta(description="Optimizer steps left out at the start (the first step among them)."),
    ]
    ceiling_s: Annotated[
        Positive, Meta(description="Seconds each for the loader alone and the model alone.")
    ] = 2.0
    evaluate: Annotated[
        bool, Meta(description="Evaluate on validation and predict on test, after the window.")
    ] = False
    save_checkpoints: Annotated[
        bool, Meta(description="Keep the final weights and a checkpoint to resume from.")
    ] = False


TIMEOUT_MIN = 240.0
"""Minutes that a job may take where its study says nothing else."""


class StudyProtocol(Protocol, kw_only=True):
    """How a study is measured; the same for all devices unless adapted. What is added here is not
    part of a run's identity: one more repeat, or more time, leaves the others as they are."""

    repeats: Annotated[Count, Meta(description="Runs of every cell, interleaved.")] = 3
    seed: Annotated[Natural, Meta(description="Seed of repeat 1; repeat k uses seed + k - 1.")] = 42
    timeout_min: Annotated[
        Positive, Meta(description="A job that takes longer is stopped and recorded as failed.")
    ] = TIMEOUT_MIN


class Settings(Strict, kw_only=True):
    """All that a factor can set: `model.size`, `loader.workers`, `train.batch_size`, …"""

    model: ModelSettings
    loader: LoaderSettings = LoaderSettings()
    train: TrainSettings = TrainSettings()
    inference: InferenceSettings = InferenceSettings()
    hpu: HpuSettings = HpuSettings()


class RunSpec(Strict, kw_only=True):
    """The identity of a run: it is done again when, and only when, this, its data or the source
    digest of the measured code changes. Prices, peaks, labels and captions are not part of it."""

    schema: int = SPEC_SCHEMA
    task: Task = "training"
    study: Name
    device: Name
    kind: Kind
    count: Annotated[Count, Meta(description="Devices, and so ranks: the world size.")]
    nodes: Annotated[Count, Meta(description="Hosts that share these devices evenly.")] = 1
    launcher: Launcher
    software: Software = Software()
    cell: str
    levels: dict[str, Level]
    repeat: Count
    seed: Natural
    dataset: Name
    settings: Settings
    protocol: Protocol


# How long a job may take.
# It travels by an environment variable: it is no part of a run, so that a longer one trains
# nothing anew that has ended.


def timeout_min(spec: RunSpec, environment: Mapping[str, str] = os.environ) -> float:
    """Minutes that a job of this run may take; untold, what a study has by default."""
    told = json.loads(environment.get(variables.TIMEOUTS) or "{}")
    return float(told.get(spec.study, {}).get(spec.device, TIMEOUT_MIN))


# Settings of the loader that do not go together.


def loader_faults(loader: LoaderSettings) -> Iterator[str]:
    """What cannot be, each with what is allowed."""
    processes = loader.workers and loader.decode != "device"
    if processes and loader.threads_per_worker > 1 and loader.start_method == "fork":
        # Threads that the rank computes with do not live on in a fork, which waits for them.
        yield (
            f"loader.threads_per_worker: {loader.threads_per_worker} threads hang in a worker that "
            "is forked; use loader.start_method: forkserver or spawn"
        )
