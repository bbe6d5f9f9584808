"""The settings of a run: all that a factor of a study can set."""

from typing import Annotated, Literal

from msgspec import UNSET, UnsetType

from feedrate.config.values import Count, Name, Natural, Positive, Strict, Text, about
from feedrate.core.plugins import declared

Task = Literal["training", "inference"]
Decode = Literal["reference", "host", "cache", "device"]
"""How JPEG files are decoded; feedrate.loading has the code of each."""

Optimizer = Literal[
    "adamw_torch", "adamw_torch_loop", "adamw_torch_foreach", "adamw_torch_fused",
    "adamw_torch_4bit", "adamw_torch_8bit", "adamw_apex_fused", "adamw_anyprecision", "adamw_8bit",
    "adamw_bnb_8bit", "paged_adamw_8bit", "paged_adamw_32bit", "stable_adamw", "adafactor",
    "adagrad", "sgd", "rmsprop", "rmsprop_bnb", "rmsprop_bnb_8bit", "rmsprop_bnb_32bit",
    "lion_8bit", "lion_32bit", "paged_lion_8bit", "paged_lion_32bit", "ademamix", "ademamix_8bit",
    "paged_ademamix_8bit", "paged_ademamix_32bit", "lomo", "adalomo", "grokadamw",
    "schedule_free_adamw", "schedule_free_radam", "schedule_free_sgd",
]  # fmt: skip
"""`optim` of TrainingArguments in transformers 4.55 or 5.x, and our names of AdamW."""

BUILDERS = "feedrate.models.builders"  # the package of the models, one file each


class ModelSettings(Strict, kw_only=True):
    """The model."""

    name: Annotated[Name, about("A file in feedrate/models/builders: bridgetower, clip, …")]
    size: Annotated[Name, about("A size that the model declares: tiny, base, large, …")]
    checkpoint: Annotated[Text | None, about("Hub id or safetensors folder; null: random.")] = None
    revision: Annotated[str | None, about("Commit, tag or branch of a hub checkpoint.")] = None
    attention: Annotated[
        Literal["eager", "sdpa", "flash"], about("eager: step by step; flash: for vit.")
    ] = "eager"
    checkpointing: Annotated[bool, about("Recompute activations in the backward pass.")] = False
    image_px: Annotated[Count | None, about("Side of the images (vit); null: by size.")] = None
    head: Annotated[Literal["token", "pooled"], about("What a classifier reads (vit).")] = "token"
    layout: Literal["batch_first", "batch_second"] = "batch_first"
    losses: Annotated[
        Literal["all"] | UnsetType, about("all: masked images and texts alone count too (flava).")
    ] = UNSET

    @property
    def label(self) -> str:
        """Name and size, such as `bridgetower-large`."""
        return f"{self.name}-{self.size}"

    @property
    def task(self) -> str | None:
        """The hub's name for the model's task, where it has one."""
        return declared(BUILDERS, "TASK").get(self.name)


class LoaderSettings(Strict, kw_only=True):
    """How samples reach the device."""

    decode: Annotated[
        Decode, about("JPEG: as published, fast on the CPU, once before training, on the device.")
    ] = "reference"
    library: Annotated[Name | UnsetType, about("Plug-in for batches; absent: torch.")] = UNSET
    form: Annotated[
        Literal["best"] | UnsetType, about("best: decoded as the library's documentation does.")
    ] = UNSET
    scaled_decode: Annotated[bool, about("host and cache: smaller scale, other pixels.")] = False
    workers: Annotated[Natural, about("Worker processes per rank; on a GPU: threads.")] = 0
    prefetch_factor: Annotated[Count, about("Batches that each worker prefetches.")] = 2
    persistent_workers: Annotated[bool, about("Workers outlive an epoch (published: off).")] = False
    pin_memory: Annotated[bool, about("Page-locked host memory (cuda and hpu only).")] = True
    start_method: Literal["fork", "spawn", "forkserver"] = "fork"
    oversubscribe: Annotated[bool, about("Allow more workers than a rank has cores.")] = False
    non_blocking: Annotated[bool, about("Copy batches to a GPU without waiting.")] = False
    timeout_s: Annotated[Positive, about("Longest time to wait for a batch.")] = 600.0
    last_batch: Annotated[
        Literal["drop", "keep", "fill"], about("An epoch's incomplete step: fill completes it.")
    ] = "drop"
    max_tokens: Annotated[Count, about("Captions are padded or cut to this length.")] = 128
    label: Annotated[Name, about("Column of a classifier's classes (vit).")] = "contest_number"


class TrainSettings(Strict, kw_only=True):
    """How the model is trained."""

    batch_size: Annotated[Count, about("Samples per device and micro-step.")] = 48
    eval_batch_size: Annotated[Count | None, about("In evaluation; null: as batch_size.")] = None
    gradient_accumulation: Annotated[Count, about("Micro-steps per step.")] = 1
    memory_gib: Annotated[Positive | None, about("Limit of a rank on a cpu; null: none.")] = None
    precision: Annotated[
        Literal["fp32", "tf32", "bf16", "fp16", "fp8", "bf16_full", "fp16_full"],
        about("bf16, fp16, fp8: autocast with fp32 weights; _full: weights and optimizer too."),
    ] = "bf16"
    execution: Annotated[
        Literal["eager", "compiled", "cuda_graphs"], about("By torch.compile (hpu: hpu.mode).")
    ] = "eager"
    strategy: Annotated[Literal["ddp", "fast_ddp", "fsdp"], about("Exchange of gradients.")] = "ddp"
    limit_all_gathers: Annotated[bool | None, about("Of FSDP1; null: FSDP2.")] = None
    cpu_offload: Annotated[bool, about("fsdp: keep the state in host memory.")] = False
    learning_rate: Annotated[Positive, about("Peak learning rate.")] = 1e-5
    learning_rate_warmup_steps: Annotated[Natural, about("Steps in which it rises.")] = 0
    optimizer: Annotated[Optimizer, about("`optim` of TrainingArguments, or ours.")] = "adamw_torch"
    ddp_bucket_mb: Annotated[Count | None, about("Size of gradient buckets; null: 25 MB.")] = None
    ddp_static_graph: Annotated[bool, about("DDP assumes the same graph in every step.")] = False
    ddp_bucket_view: Annotated[bool, about("Gradients are views of DDP's buckets.")] = False
    logging_steps: Annotated[Count, about("Steps between logs; each waits for the loss.")] = 10


class InferenceSettings(Strict, kw_only=True):
    """How forward passes are timed; `train` has their batch size and precision."""

    head: Literal["contrastive", "matching"] = "contrastive"
    preprocessing: Annotated[
        Literal["out", "in"], about("Timing starts with inputs on the device, or with files (in).")
    ] = "out"


class HpuSettings(Strict, kw_only=True):
    """Settings that only Gaudi has, under the names of optimum-habana."""

    trainer: Literal["optimum-habana", "transformers"] = "optimum-habana"
    mode: Annotated[
        Literal["lazy", "eager", "compile"], about("lazy: operations are collected into graphs.")
    ] = "lazy"
    hpu_graphs_for_training: Annotated[bool, about("Replay the step (mode: lazy).")] = False
    hpu_graphs_for_inference: Annotated[bool | None, about("null: only in mode lazy.")] = None
    pipelining_fwd_bwd: Annotated[bool, about("Build the next graph early (mode: lazy).")] = False
    non_blocking_data_copy: Annotated[bool, about("Do not wait for copies of batches.")] = False
    use_dynamic_shapes: Annotated[bool, about("One graph for several shapes (mode: lazy).")] = False
    fused_adam: Annotated[bool, about("Gaudi's FusedAdamW instead of train.optimizer.")] = True
    fused_clip_norm: Annotated[bool, about("FusedClipNorm of the Gaudi software.")] = True
    adam_epsilon: Annotated[Positive, about("Adam's epsilon (other kinds: 1e-8).")] = 1e-6
    ddp_bucket_cap_mb: Annotated[Count, about("Size of the buckets of gradients, MB.")] = 230
    autocast_bf16_ops: Annotated[list[str], about("Operations in bf16; empty: the defaults.")] = []
    autocast_fp32_ops: Annotated[list[str], about("Operations in fp32; needs the other list.")] = []
    minimize_memory: Annotated[bool, about("Less memory, more time (precision: fp8).")] = False
    sdp_on_bf16: Annotated[bool, about("Attention reduces in bf16 (attention: sdpa).")] = False
    use_compiled_autograd: Annotated[bool, about("Backward pass too (mode: compile).")] = False
    use_regional_compilation: Annotated[bool, about("Layer by layer (mode: compile).")] = False
    adjust_throughput: Annotated[bool, about("Trainer's rate without logging, saving.")] = False


class Settings(Strict, kw_only=True):
    """All that a factor can set: `model.size`, `loader.workers`, `train.batch_size`, …"""

    model: ModelSettings
    loader: LoaderSettings = LoaderSettings()
    train: TrainSettings = TrainSettings()
    inference: InferenceSettings = InferenceSettings()
    hpu: HpuSettings = HpuSettings()
