"""The spec of a run, which is its identity, and the settings that do not work together."""

import importlib
from collections.abc import Iterator
from functools import cache
from operator import attrgetter
from typing import TYPE_CHECKING, Annotated, Any, Literal

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from feedrate.config.errors import not_one_of
from feedrate.config.settings import BUILDERS, Decode, LoaderSettings, ModelSettings, Settings, Task
from feedrate.config.values import (
    Count,
    Level,
    Name,
    Natural,
    NotNegative,
    Positive,
    Repeats,
    Seed,
    Strict,
    about,
)
from feedrate.core import paths, plugins

SPEC_SCHEMA = 1
"""Version of `RunSpec`; raise it when a field changes its meaning (all runs are then redone)."""

KINDS, LAUNCHERS = "feedrate.devices.kinds", "feedrate.devices.launchers"
DECODERS, LIBRARIES = "feedrate.loading.decoders", "feedrate.loading.libraries"
"""Packages of plug-ins. Loader libraries are only in other distributions (extras/loaders)."""

if TYPE_CHECKING:
    Kind = str
    Launcher = str
else:
    Kind = Literal[plugins.names(KINDS)]
    Launcher = Literal[plugins.names(LAUNCHERS)]

LoadingStage = Literal["open", "read", "decode", "resize", "tokenise", "collate"]
Stage = Literal[LoadingStage, "hand_over", "copy", "forward", "backward", "exchange", "optimizer"]
"""The stages of a step: those of the loader's processes, and those of the one that trains."""

FULL_EPOCH_STEPS = 20
"""With fewer steps in an epoch, a run's rate is not compared with published ones."""
TIMEOUT_MIN = 240.0  # minutes that a job may take if its study sets no limit


class Software(Strict, kw_only=True):
    """The software of a device's training processes, in addition to the job's environment."""

    python: Annotated[str | None, about("Interpreter; null: found by feedrate.")] = None
    modules: Annotated[list[str], about("Environment modules to load first (`module load`).")] = []
    environment: Annotated[dict[str, str], about("Environment variables of the processes.")] = {}
    container: Annotated[str | None, about("Apptainer image: a file or docker://…")] = None


class Protocol(Strict, kw_only=True):
    """How a run is measured."""

    steps: Annotated[Count, about("Optimizer steps in all, warm-up included.")]
    warmup_steps: Annotated[Count, about("Steps left out at the start, the first among them.")]
    ceiling_s: Annotated[
        NotNegative, about("Seconds after the timed steps for each ceiling; 0: none.")
    ] = 2.0
    profile_steps: Annotated[
        Count | UnsetType, about("Steps to trace with torch.profiler at the end; absent: none.")
    ] = UNSET
    evaluate: Annotated[bool, about("Evaluate before and after the timed steps.")] = False
    save_checkpoints: Annotated[bool, about("Keep the final weights and a checkpoint.")] = False


class StudyProtocol(Protocol, kw_only=True):
    """How a study is measured. The keys added here are no part of a run's identity."""

    repeats: Annotated[Repeats, about("Runs of every cell, interleaved.")] = 3
    seed: Annotated[Seed, about("Seed of repeat 1; repeat k uses seed + k - 1.")] = 42
    timeout_min: Annotated[Positive, about("A job that takes longer fails.")] = TIMEOUT_MIN


class Most(Strict, kw_only=True):
    """The most that the protocol of any study may ask for."""

    steps: Count
    warmup_steps: Count
    ceiling_s: NotNegative
    timeout_min: Positive


class RunSpec(Strict, kw_only=True):
    """The identity of a run, with its data and code. Prices, peaks and labels are no part of it."""

    schema: int = SPEC_SCHEMA
    task: Task = "training"
    study: Name
    device: Name
    kind: Kind
    count: Annotated[Count, about("Devices, and so ranks: the world size.")]
    nodes: Annotated[Count, about("Hosts that share these devices evenly.")] = 1
    launcher: Launcher
    software: Software = Software()
    cell: str
    levels: dict[str, Level]
    repeat: Count
    seed: Natural
    dataset: Name
    settings: Settings
    protocol: Protocol

    @property
    def step_samples(self) -> int:
        """Samples of an optimizer step, or of a pass, of all ranks: the global batch."""
        train = self.settings.train
        return train.batch_size * train.gradient_accumulation * self.count

    @property
    def of_cell(self) -> "RunSpec":
        """The spec without what differs between the repeats of a cell."""
        return replace(self, repeat=1, seed=0)

    @property
    def full_epoch_steps(self) -> int:
        """Steps that an epoch has at least, so that its end is a small part of the run."""
        return 1 if self.task == "inference" else min(FULL_EPOCH_STEPS, self.protocol.steps)


def spec_faults(spec: RunSpec) -> list[str]:
    """Settings that do not work together, with what is allowed instead."""
    faults = list(model_faults(spec.settings.model, spec.settings.loader.max_tokens))
    faults += loader_faults(spec.settings.loader)
    if not spec.protocol.ceiling_s and spec.protocol.profile_steps:
        faults.append("protocol.ceiling_s: profile_steps needs more than 0 s")
    if spec.task == "inference":
        faults += inference_faults(spec)
    return faults


@cache
def model_faults(model: ModelSettings, max_tokens: int = 1) -> tuple[str, ...]:
    """Settings that the model does not offer. Only a checkpoint says how long its captions are."""
    sizes = plugins.declared(BUILDERS, "SIZES")
    if model.name not in sizes:
        return (f"model.name: {not_one_of(model.name, sizes, 'models')}",)
    if model.size not in sizes[model.name]:
        fault = not_one_of(model.size, sizes[model.name], f"sizes of {model.name}")
        return (f"model.size: {fault}",)
    faults = []
    offers = plugins.declared(BUILDERS, "OFFERS").get(model.name, {})
    default = ModelSettings(name=model.name, size=model.size)
    for name in ("attention", "image_px", "head", "layout", "losses"):
        value = getattr(model, name)
        offer = offers.get(name, (getattr(default, name),))
        if isinstance(offer, dict):
            allowed = "null or {from} to {to} in steps of {step}".format(**offer)
            offer = (None, *range(offer["from"], offer["to"] + 1, offer["step"]))
        else:
            words = {None: "null", UNSET: "nothing"}
            allowed = ", ".join(words.get(level, str(level)) for level in offer)
        if value not in (*offer, UNSET):
            faults.append(f"model.{name}: {value} is not allowed; {model.name} offers: {allowed}")
    longest = plugins.declared(BUILDERS, "LONGEST").get(model.name, max_tokens)
    if model.checkpoint is None and max_tokens > longest:
        faults.append(f"loader.max_tokens: {max_tokens}: {model.name} takes at most {longest}")
    if fault := paths.fault(model.checkpoint or ""):
        faults.append(f"model.checkpoint: it is not allowed; {fault}")
    return tuple(faults)


def library_of(loader: LoaderSettings) -> str:
    """The loader library that makes a run's batches; empty: PyTorch's, with our workers."""
    return "" if loader.library in (UNSET, "torch") else str(loader.library)


def library_rules(library: str) -> Any:
    """The module with the rules of a loader library: its `faults` and `missing_packages`."""
    return importlib.import_module(f"{plugins.home(LIBRARIES, library)}._rules")


def loader_faults(loader: LoaderSettings) -> Iterator[str]:
    """Loader settings that do not work together, with what is allowed instead."""
    library, libraries = library_of(loader), plugins.names(LIBRARIES)
    if library in libraries:
        yield from library_rules(library).library_faults(loader)
    elif library:
        yield f"loader.library: {not_one_of(library, ('torch', *libraries), 'libraries')}"
    elif loader.form == "best":
        yield "loader.form: best is for other libraries than torch; leave it out"


@cache
def ignored_settings(decode: Decode, kind: Kind) -> frozenset[str]:
    """Settings of `loader` that change nothing where a device of this kind decodes in this way."""
    kinds = plugins.declared(DECODERS, "KINDS")
    ignored = plugins.declared(DECODERS, "IGNORES")
    by_decoder = [
        frozenset(ignored.get(name, ()))
        for name, level in plugins.declared(DECODERS, "LEVEL").items()
        if level == decode and kind in kinds.get(name, (kind,))
    ]
    return frozenset.intersection(*by_decoder) if by_decoder else frozenset()


ONLY_TRAINING = {
    "train.gradient_accumulation": 1,
    "train.strategy": "ddp",
    "train.cpu_offload": False,
    "model.checkpointing": False,
    "loader.workers": 0,
    "protocol.profile_steps": UNSET,
    "protocol.evaluate": False,
    "protocol.save_checkpoints": False,
}
"""Settings that inference does not have, with the values that leave them out."""


def inference_faults(spec: RunSpec) -> Iterator[str]:
    """Settings that the task `inference` does not support, with what is allowed instead."""
    loader, precision = spec.settings.loader, spec.settings.train.precision
    for key, allowed in ONLY_TRAINING.items():
        value = attrgetter(key)(spec if key.startswith("protocol.") else spec.settings)
        if value != allowed:
            usual = "out" if allowed is UNSET else allowed
            yield f"{key}: {value} is for training, and this is inference; leave it {usual}"
    if precision == "fp8":
        yield "train.precision: fp8 is for training, and this is inference; use bf16"
    if spec.settings.inference.preprocessing == "in" and loader.decode == "cache":
        why = "cache decodes before the run, so inference.preprocessing: in cannot time it"
        yield f"loader.decode: {why}; use reference or host"
    if loader.decode == "device":
        yield "loader.decode: device is for training, and this is inference; use host or cache"
