"""config/devices.yaml: its types and checks, and the entry for the accelerators of this machine."""

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Annotated, Literal

from msgspec.structs import replace

from feedrate.config.errors import Origin, Problems, numbered, raise_all
from feedrate.config.spec import LAUNCHERS, Kind, Launcher, Software
from feedrate.config.values import Count, Name, Positive, Strict, Text, about, load
from feedrate.core import plugins
from feedrate.core.secrets import SECRET_NAME, secrets_in

Capability = Literal[
    # Precisions
    "fp32", "tf32", "bf16", "fp16", "half", "fp8",
    # Synchronisation and memory; the first five need several devices
    "ddp", "ddp_options", "fsdp", "fsdp_fp16", "fsdp1", "fast_ddp", "cpu_offload",
    # Data path
    "decode_device", "non_blocking",
    # Execution
    "compiled", "graphs", "lazy_mode", "pipelining", "autocast_lists", "flash", "stock_trainer",
    # Optimizers
    "fused_adam", "foreach_adam", "fused_clip_norm", "optimizer_8bit",
    # Speed
    "large_models",
    # Not in the registry: what a job of one device can do, and no other
    "one_device",
]  # fmt: skip
"""All capabilities; config/devices.yaml explains each."""

BETWEEN_DEVICES = ("ddp_options", "fsdp", "fsdp_fp16", "fsdp1")
"""Capabilities that only a job of several devices can have."""


class Peak(Strict, kw_only=True):
    """Peak rate of one device (one accelerator, not the job) in matrix multiplication."""

    precision: Annotated[Name, about("Settings it applies to: fp32, tf32, bf16, fp16 or fp8.")]
    datasheet_tflops: Annotated[Positive | None, about("Dense, by the data sheet, TFLOP/s.")] = None
    achievable_tflops: Annotated[Positive | None, about("Best measured elsewhere, TFLOP/s.")] = None
    source: Annotated[Text, about("Source of the numbers.")]


class JobResources(Strict, kw_only=True):
    """Requests of a training job to a cluster, for each of its nodes; a profile overrides them."""

    gres: Annotated[str | None, about("Slurm's generic resource: gpu:8, gpu:h100:8.")] = None
    memory_gib: Annotated[Positive | None, about("Host memory; null: cluster's default.")] = None
    constraint: Annotated[str | None, about("Node features that Slurm requires.")] = None


class Device(Strict, kw_only=True):
    """One entry of config/devices.yaml."""

    label: Annotated[Text, about("Name in tables and figures.")]
    kind: Annotated[Kind, about("The adapter that drives it: cpu, cuda or hpu.")]
    count: Annotated[Count, about("Devices in one training job (ranks).")] = 1
    capabilities: Annotated[list[Capability], about("What it can do; a level may require one.")]
    model_pattern: Annotated[str | None, about("Regular expression of the reported name.")] = None
    memory_gib: Annotated[Positive | None, about("Memory of a device for processes, GiB.")] = None
    peaks: Annotated[list[Peak], about("Peak rates; empty: no MFU.")] = []
    power_w: Annotated[Positive | None, about("Rated power of one device, W.")] = None
    price_usd_per_hour: Annotated[Positive | None, about("Price of all devices of a job.")] = None
    launcher: Annotated[
        Launcher | None, about("null: single for one device, torchrun on one node, else srun.")
    ] = None
    nodes: Annotated[Count, about("Hosts that share the job's devices evenly.")] = 1
    software: Annotated[Software, about("The software of its processes.")] = Software()
    job: Annotated[JobResources, about("Requests of a job to a cluster.")] = JobResources()
    threads: Annotated[Count | None, about("CPU cores that a job requests; null: all.")] = None
    variant_of: Annotated[Name | None, about("A study's adapt for it applies too.")] = None
    source: Annotated[str | None, about("Source of the entry's facts.")] = None

    @property
    def able(self) -> list[str]:
        """The capabilities of its jobs."""
        if self.count > 1:
            return [*self.capabilities]
        return [*(c for c in self.capabilities if c not in BETWEEN_DEVICES), "one_device"]


DETECTED = "detected"
"""The word for the accelerators of this machine among `devices` in config.yaml."""


class Machine(Strict, kw_only=True):
    """The accelerators found on a machine."""

    host: str
    kind: Kind | None = None
    models: list[str] = []  # of each that jobs may use, as its driver names it
    remark: str = ""  # a sentence that says why there are none, or why they cannot be used


def is_called(model: str, pattern: str) -> bool:
    """Whether a `model_pattern` matches the whole name `model` that a device reports."""
    return re.fullmatch(pattern, model) is not None


def launcher_limit(launcher: Launcher | None, limit: str) -> float:
    """MAX_PROCESSES or MAX_NODES of a launcher; infinite if it declares none."""
    return float(plugins.declared(LAUNCHERS, limit).get(launcher or "", math.inf))


@cache
def default_launcher(jobs: Literal["process", "processes", "nodes"]) -> Launcher:
    """The launcher that declares these `jobs` as DEFAULT_FOR (see devices/launch.py)."""
    declared = plugins.declared(LAUNCHERS, "DEFAULT_FOR")
    return next(name for name, default_for in declared.items() if default_for == jobs)


def read_devices(root: Path, names: Iterable[str]) -> dict[str, Device]:
    """The registry, with an entry `h100-x1` for each such name in `names`. Raises ConfigError."""
    origin = "config/devices.yaml"
    registry = load(root / origin, dict[Name, Device], origin)
    raise_all(check_devices(origin, registry))
    devices = dict(registry)
    for name in names:
        base, _, count = name.rpartition("-x")
        if name not in registry and base in registry and re.fullmatch("[1-9][0-9]*", count):
            devices[name] = variant(base, registry, int(count))[1]
    return devices


def check_devices(origin: str, devices: Mapping[str, Device]) -> list[str]:
    """Check each entry of the device registry."""
    problems = Problems(origin)
    for name, device in devices.items():
        problems.check_unique(numbered(f"{name}.capabilities[{{}}]", device.capabilities))
        precisions = [peak.precision for peak in device.peaks]
        problems.check_unique(numbered(f"{name}.peaks[{{}}].precision", precisions))
        if name == DETECTED:
            problems.add(name, "this name means the accelerators of a machine; choose another")
        if device.variant_of is not None:
            problems.check_known(f"{name}.variant_of", device.variant_of, devices, "entries")
        pattern = device.model_pattern or ""
        try:
            re.compile(pattern)
        except re.error as error:
            text = f"{pattern!r} is not a regular expression ({error})"
            problems.add(f"{name}.model_pattern", text)
        for variable, value in device.software.environment.items():
            key = f"{name}.software.environment.{variable}"
            if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", variable):
                problems.add(key, "an environment variable cannot have this name")
            elif SECRET_NAME.search(variable) or secrets_in(value):
                text = "a secret would appear in every record; set it where snakemake is started"
                problems.add(key, text)
        if device.count % device.nodes:
            text = f"{device.nodes} nodes cannot share {device.count} devices evenly"
            problems.add(f"{name}.nodes", text)
        for limit, number in (("MAX_PROCESSES", device.count), ("MAX_NODES", device.nodes)):
            most = launcher_limit(device.launcher, limit)
            if number > most:
                noun = limit.removeprefix("MAX_").lower()
                text = f"{device.launcher!r} starts at most {most:g} {noun}, not {number}"
                problems.add(f"{name}.launcher", text)
        problems.check_path(f"{name}.software.python", device.software.python)
        problems.check_path(f"{name}.software.container", device.software.container)
    return problems


def with_detected(
    names: Sequence[str], devices: Mapping[str, Device], machine: Machine, origin: Origin
) -> tuple[list[str], dict[str, Device]]:
    """`names` with the machine's entry in place of `detected`, and the registry with that entry. A
    machine with another number of devices than the registered entry gets an entry of its own,
    `h100-x1`, so that its results never count as those of the registered entry. Raises ConfigError
    if no entry fits."""
    matching = [
        name
        for name, entry in devices.items()
        if entry.kind == machine.kind and entry.model_pattern and machine.models
        if is_called(machine.models[0], entry.model_pattern)
    ]
    counts = Counter(machine.models)
    models = " and ".join(f"{count} x {model}" for model, count in counts.items())
    instead = f"name entries of config/devices.yaml: {', '.join(devices)}"
    if machine.remark or not machine.models:
        remark = machine.remark or f"{machine.host} has no accelerator that can be used"
        fault = f"{remark}; run this where the accelerators are, or {instead}"
    elif len(counts) > 1:
        fault = f"{machine.host} has {models}: the devices of a job must be of one model; {instead}"
    else:
        fault = (
            f"{machine.host} has {models}, and no entry of config/devices.yaml has a model_pattern "
            "for it; add one with the peaks of its own data sheet (config/README.md, Add a device)"
        )
    if machine.remark or len(counts) != 1 or not matching:
        problems = Problems(origin)
        problems.add(f"devices[{names.index(DETECTED)}]", f"'detected' is not possible: {fault}")
        raise_all(problems)
    exact = [name for name in matching if devices[name].count == len(machine.models)]
    if exact:
        name, entry = exact[0], devices[exact[0]]
    else:
        name, entry = variant(matching[0], devices, len(machine.models))
    chosen = dict.fromkeys(name if word == DETECTED else word for word in names)
    return list(chosen), {**devices, name: entry}


def variant(name: str, devices: Mapping[str, Device], count: int) -> tuple[str, Device]:
    """The name and values of an entry for another count of devices on one host."""
    entry = devices[name]
    base = entry.variant_of or name
    share = count / entry.count
    one_node = launcher_limit(entry.launcher, "MAX_NODES") == 1
    several = count > 1 and launcher_limit(entry.launcher, "MAX_PROCESSES") > 1
    gres, memory_gib = entry.job.gres, entry.job.memory_gib
    if gres:
        gres = re.sub(r"(?<=:)\d+$", str(count), gres)  # gpu:8, gpu:h100:8
    if memory_gib:
        memory_gib *= share * entry.nodes
    price = entry.price_usd_per_hour
    device = replace(
        entry,
        label=f"{entry.label} x{count}",
        count=count,
        nodes=1,
        launcher=entry.launcher if several and one_node else None,
        price_usd_per_hour=price and price * share,
        job=replace(entry.job, gres=gres, memory_gib=memory_gib),
        variant_of=base,
    )
    return f"{base}-x{count}", device
