"""The settings that only Gaudi has."""

from typing import Annotated, Literal

from msgspec import Meta

from feedrate.config.base import Count, Natural, Positive, Strict


class HpuSettings(Strict, kw_only=True):
    """What only Gaudi has; named as optimum-habana's arguments are. Other kinds ignore it.

    Some need others: `devices/kinds/hpu.py` says which.
    """

    mode: Annotated[
        Literal["lazy", "eager", "compile"],
        Meta(
            description="How operations reach the device: gathered, one by one, or compiled "
            "(torch.compile with hpu_backend). Sets PT_HPU_LAZY_MODE."
        ),
    ] = "lazy"
    hpu_graphs_for_training: Annotated[
        bool, Meta(description="Replay the step as a graph (mode: lazy; several: fast_ddp).")
    ] = False
    hpu_graphs_for_inference: Annotated[
        bool | None, Meta(description="The same in evaluation; null: in mode lazy.")
    ] = None
    pipelining_fwd_bwd: Annotated[
        bool, Meta(description="Build the backward graph while the forward one runs (mode: lazy).")
    ] = False
    non_blocking_data_copy: Annotated[
        bool, Meta(description="Copy batches to the device without waiting.")
    ] = False
    use_dynamic_shapes: Annotated[
        bool, Meta(description="One graph for inputs of several shapes (mode: lazy).")
    ] = False
    fused_adam: Annotated[
        bool, Meta(description="FusedAdamW of the Gaudi software in place of train.optimizer.")
    ] = True
    fused_clip_norm: Annotated[bool, Meta(description="FusedClipNorm of it.")] = True
    adam_epsilon: Annotated[
        Positive, Meta(description="Adam's epsilon (other kinds: the 1e-8 of transformers).")
    ] = 1e-6
    ddp_bucket_cap_mb: Annotated[
        Count, Meta(description="Gradients are exchanged in buckets of this size, MB.")
    ] = 230
    autocast_bf16_ops: Annotated[
        list[str], Meta(description="Operations that run in bf16; empty: the software's own list.")
    ] = []
    autocast_fp32_ops: Annotated[
        list[str], Meta(description="Operations that stay in fp32; given with the other list.")
    ] = []
    minimize_memory: Annotated[
        bool, Meta(description="Less memory for more time (train.precision: fp8).")
    ] = False
    sdp_on_bf16: Annotated[
        bool, Meta(description="Attention reduces in bf16 (model.attention: sdpa).")
    ] = False
    use_compiled_autograd: Annotated[
        bool, Meta(description="Compile the backward pass too (mode: compile).")
    ] = False
    use_regional_compilation: Annotated[
        bool, Meta(description="Compile layer by layer (mode: compile).")
    ] = False
    adjust_throughput: Annotated[
        bool, Meta(description="The Trainer's own rate leaves out logging and saving.")
    ] = False
    profiling_warmup_steps: Annotated[
        Natural, Meta(description="Steps before the profiler records.")
    ] = 0
    profiling_steps: Annotated[
        Natural,
        Meta(description="Steps that the profiler records, into trainer/hpu_profile; it slows."),
    ] = 0
    profiling_warmup_steps_eval: Annotated[Natural, Meta(description="The same in evaluation.")] = 0
    profiling_steps_eval: Annotated[Natural, Meta(description="The same in evaluation.")] = 0
    profiling_record_shapes: Annotated[bool, Meta(description="Record tensors' shapes.")] = True
    profiling_with_stack: Annotated[bool, Meta(description="Record lines of source.")] = False
