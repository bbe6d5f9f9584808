"""What `hpu` needs of optimum-habana 1.21.2 (arguments, models, a corrected Trainer), and arguments
for the Trainer of transformers, if `hpu.trainer` names it.

Functions import the libraries when they need them, since importing this module must not.
"""

import importlib.util
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from feedrate.config.settings import HpuSettings, Settings
from feedrate.config.spec import RunSpec, library_of
from feedrate.config.values import level_text
from feedrate.core.files import write_json
from feedrate.devices import host
from feedrate.devices.base import BF16_AUTOCAST, Counter, DeviceError, counter

OPTIMUM = "optimum-habana"

SAME_NAME = (
    "pipelining_fwd_bwd", "non_blocking_data_copy", "minimize_memory", "sdp_on_bf16",
    "use_compiled_autograd", "use_regional_compilation", "adjust_throughput",
)  # fmt: skip
"""Settings of `hpu` that GaudiTrainingArguments has under the same name."""

NOT_STOCK = (
    "fused_adam", "fused_clip_norm", "hpu_graphs_for_training", "pipelining_fwd_bwd",
    "use_dynamic_shapes", "minimize_memory", "sdp_on_bf16", "use_compiled_autograd",
    "use_regional_compilation", "adjust_throughput",
)  # fmt: skip
"""Settings of `hpu` that the Trainer of transformers lacks."""

FIRST_GENERATION = re.compile(r"(?i)\s*(gaudi\s*1?|hl-?20\d\S*)\s*")
"""The names that drivers and tools have for it."""

CARDS = 8  # in a node; local rank r gets the module r, which is right for a job with them all


def make_arguments(common: dict[str, Any], settings: Settings, warmup_steps: int) -> Any:
    """The arguments of `hpu.trainer`, from those that all kinds share and the run's settings. For
    optimum-habana's, writes gaudi_config.json to the output folder."""
    hpu, compiled = settings.hpu, settings.hpu.mode == "compile"
    arguments = {
        **common,
        "adam_epsilon": hpu.adam_epsilon,
        "bf16": settings.train.precision in BF16_AUTOCAST,
        "ddp_bucket_cap_mb": hpu.ddp_bucket_cap_mb,
        "ddp_find_unused_parameters": False,
        "torch_compile": compiled,
        "torch_compile_backend": "hpu_backend" if compiled else None,
        # optimum-habana's own flag has no effect: the loader has already copied the batch by then.
        "accelerator_config": {"non_blocking": hpu.non_blocking_data_copy},
    }
    if hpu.trainer != OPTIMUM:
        from transformers import TrainingArguments

        return TrainingArguments(**arguments)
    from optimum.habana import GaudiTrainingArguments

    # The published file would be fetched from the hub, and would set bf16 itself.
    config = {
        "use_fused_adam": hpu.fused_adam,
        "use_fused_clip_norm": hpu.fused_clip_norm,
        "use_torch_autocast": arguments["bf16"],
        "use_dynamic_shapes": hpu.use_dynamic_shapes,
    }
    write_json(Path(common["output_dir"]) / "gaudi_config.json", config)
    return GaudiTrainingArguments(
        **arguments,
        **{name: getattr(hpu, name) for name in SAME_NAME},
        use_habana=True,
        use_lazy_mode=hpu.mode == "lazy",
        fp8=settings.train.precision == "fp8",
        attn_implementation=settings.model.attention,
        distribution_strategy=settings.train.strategy,
        use_hpu_graphs_for_training=hpu.hpu_graphs_for_training,
        use_hpu_graphs_for_inference=graphs_for_inference(hpu),
        gaudi_config_name=common["output_dir"],
        throughput_warmup_steps=warmup_steps,
    )


def contradictions(spec: RunSpec) -> Iterator[str]:
    """A sentence for each contradiction between settings that NEEDS cannot express."""
    hpu, train, loader = spec.settings.hpu, spec.settings.train, spec.settings.loader
    if hpu.trainer != OPTIMUM:
        values = {f"hpu.{name}": getattr(hpu, name) for name in NOT_STOCK}
        absent = [f"{name}: {level_text(value)}" for name, value in values.items() if value]
        # It never marks the end of a step: in lazy mode all steps between two logs are one graph.
        if hpu.mode == "lazy":
            absent.append("hpu.mode: lazy")
        if train.strategy == "fast_ddp":
            absent.append("train.strategy: fast_ddp")
        if train.precision == "fp8":
            absent.append("train.precision: fp8")
        if absent:
            yield f"hpu.trainer: transformers does not offer {', '.join(absent)}; use {OPTIMUM}"
    if hpu.hpu_graphs_for_training and spec.count > 1 and train.strategy != "fast_ddp":
        condition = f"needs train.strategy: fast_ddp, not {train.strategy}"
        yield f"hpu.hpu_graphs_for_training: true on {spec.count} devices {condition}"
    if hpu.fused_adam and train.optimizer != "adamw_torch":
        reason = "has no effect with hpu.fused_adam: true; set hpu.fused_adam to false"
        yield f"train.optimizer: {train.optimizer} {reason}"
    if bool(hpu.autocast_bf16_ops) != bool(hpu.autocast_fp32_ops):
        yield "hpu.autocast_bf16_ops and hpu.autocast_fp32_ops need each other: give both"
    if hpu.autocast_bf16_ops and train.precision not in BF16_AUTOCAST:
        yield f"hpu.autocast_bf16_ops needs train.precision: bf16, not {train.precision}"
    # optimum-habana starts workers with `spawn` there (its issue SW-207456).
    processes = loader.workers and loader.decode != "device" and not library_of(loader)
    if spec.nodes > 1 and processes and loader.start_method == "fork":
        reason = f"on {spec.nodes} Gaudi nodes forked workers hang or crash"
        yield f"loader.start_method: fork: {reason}; use forkserver or spawn"


def graphs_for_inference(hpu: HpuSettings) -> bool:
    """Whether inference replays graphs; by default in lazy mode, the only mode with graphs."""
    choice = hpu.hpu_graphs_for_inference
    return hpu.mode == "lazy" if choice is None else choice


def granted_modules(spec: RunSpec, environment: Mapping[str, str]) -> list[int]:
    """The modules of the cards that HABANA_VISIBLE_DEVICES grants, as Slurm sets it, if they are a
    part of one node's eight cards and as many as the job's; else none. Where Slurm closes the
    device files of other jobs' cards, it counts the open ones from 0."""
    cards = host.parse_list(environment.get("HABANA_VISIBLE_DEVICES", ""))
    folder = host.SYS / "class/accel"
    numbers = sorted(int(card.name.removeprefix("accel")) for card in folder.glob("accel[0-9]*"))
    mode = os.R_OK | os.W_OK
    usable = [n for n in numbers if os.access(host.DEV / f"accel/accel{n}", mode)]
    if len(usable) == len(cards):
        cards = usable
    modules = [host.kernel_number(folder / f"accel{n}/device/module_id", -1) for n in cards]
    fits = spec.nodes == 1 and len(modules) == spec.count < CARDS
    return modules if fits and min(modules) >= 0 else []


def importable(module: str) -> bool:
    """Whether a module and its packages are installed here."""
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def adapt_models() -> None:
    """Replace parts of transformers with the library's own versions, as the published script does,
    but for CLIP: the attention of 1.21.2 confuses heads and tokens."""
    try:
        library = importlib.import_module("optimum.habana.transformers.modeling_utils")
    except IndexError:
        raise DeviceError(
            "no Gaudi software: optimum-habana finds no habana-torch-plugin in `pip list`; install "
            "pip in the same environment"
        ) from None
    clip = vars(importlib.import_module("transformers.models.clip.modeling_clip"))
    stock = dict(clip)
    library.adapt_transformers_to_gaudi()
    clip.update(stock)


class Corrections:
    """A mixin that corrects errors of GaudiTrainer 1.21.2."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        trainer: Any = self
        if trainer.args.use_compiled_autograd:  # the library passes it to DeepSpeed only
            import torch

            torch._dynamo.config.compiled_autograd = True

    def get_batch_samples(self, *args: Any, **kwargs: Any) -> Any:
        """The batches of one optimizer step, under the name that transformers uses."""
        return super().get_batch_samples_transformers(*args, **kwargs)  # type: ignore[misc]

    def get_batch_samples_transformers(self, *args: Any, **kwargs: Any) -> Any:
        """The name that GaudiTrainer's loop calls."""
        return self.get_batch_samples(*args, **kwargs)

    def compute_loss(self, model: Any, *args: Any, **kwargs: Any) -> Any:
        """The loss, divided by the number of micro-steps. GaudiTrainer does so only with
        `pipelining_fwd_bwd`; otherwise its gradients are too large by this factor."""
        trainer: Any = self
        loss = super().compute_loss(model, *args, **kwargs)  # type: ignore[misc]
        divides = trainer.args.use_lazy_mode and trainer.args.pipelining_fwd_bwd
        if model.training and not divides:
            return loss / trainer.current_gradient_accumulation_steps
        return loss

    def prediction_step(self, *args: Any, **kwargs: Any) -> Any:
        """A copy of the answer to a batch: a graph's next replay overwrites the answer itself."""
        from accelerate.utils import recursively_apply

        answer = super().prediction_step(*args, **kwargs)  # type: ignore[misc]
        return recursively_apply(lambda tensor: tensor.clone(), answer)

    def predict(self, *args: Any, **kwargs: Any) -> Any:
        """Predict, with all steps in the library's rate: there may be fewer than warm-up steps.
        Graphs for inference replace the model's forward pass for good, by one without gradients.
        The pass for training is put back, since the ceilings train after the evaluation."""
        trainer: Any = self
        arguments, own = trainer.args, vars(trainer.model)
        forward = {"forward": own["forward"]} if "forward" in own else {}
        warmup, arguments.throughput_warmup_steps = arguments.throughput_warmup_steps, 0
        try:
            return super().predict(*args, **kwargs)  # type: ignore[misc]
        finally:
            arguments.throughput_warmup_steps = warmup
            if "clear_cache" in own:
                own["clear_cache"]()  # else the graphs stay on the device
            for name in ("clear_cache", "clear_inputs", "forward"):
                own.pop(name, None)
            own |= forward
            trainer.already_wrapped_for_hpu_graphs = False


def gaudi_counter(module: str | None) -> Counter:
    """The energy counter of the Gaudi with this module number (package pyhlml of the Gaudi
    software). A lone process without a number gets any card: known only if there is one."""

    def find(hlml: Any) -> Any:
        cards = map(hlml.hlmlDeviceGetHandleByIndex, range(hlml.hlmlDeviceGetCount()))
        modules = {str(hlml.hlmlDeviceGetModuleID(card)): card for card in cards}
        if module is None and len(modules) == 1:
            return next(iter(modules.values()))
        return modules.get(module or "")

    return counter("pyhlml", find)
