"""The device registry's types: what a device is, can do, and reaches at best."""

import re
from typing import Annotated

from msgspec import Meta

from feedrate.config.base import Count, Name, Positive, Strict
from feedrate.config.settings import Kind, Launcher
from feedrate.config.software import Software


class Peak(Strict, kw_only=True):
    """Peak matrix-multiply rate of one device (one accelerator, not the job)."""

    precision: Annotated[
        Name, Meta(description="fp32, bf16, fp16 or fp8: which settings it applies to.")
    ]
    datasheet_tflops: Annotated[
        Positive | None, Meta(description="Dense rate of the data sheet, TFLOP/s.")
    ] = None
    achievable_tflops: Annotated[
        Positive | None, Meta(description="Best rate that others measured, TFLOP/s.")
    ] = None
    source: Annotated[str, Meta(description="Where the numbers come from.", min_length=1)]


class JobResources(Strict, kw_only=True):
    """What a training job asks a cluster for, on each of its nodes; a profile may say otherwise."""

    gres: Annotated[
        str | None, Meta(description="Slurm's generic resource: gaudi:8, gpu:8, gpu:h100:8.")
    ] = None
    memory_gib: Annotated[
        Positive | None, Meta(description="Host memory; null: the cluster's default.")
    ] = None
    constraint: Annotated[
        str | None, Meta(description="Node features that Slurm is to look for.")
    ] = None


BETWEEN_DEVICES = ("ddp_options", "fsdp", "fsdp_fp16", "fsdp1")
"""Capabilities that mean nothing in a job of one device."""


def is_called(model: str, pattern: str) -> bool:
    """Whether `model`, the name that a device reports, is one of a `model_pattern`: all of it, as
    "NVIDIA H100" is the start of the names of unlike cards."""
    return re.fullmatch(pattern, model) is not None


class Device(Strict, kw_only=True):
    """One entry of config/devices.yaml."""

    label: Annotated[str, Meta(description="Name in tables and figures.", min_length=1)]
    kind: Annotated[Kind, Meta(description="Which adapter drives it: cpu, cuda or hpu.")]
    count: Annotated[Count, Meta(description="Devices in one training job (ranks).")] = 1
    capabilities: Annotated[
        list[Name], Meta(description="What it can do; a level may require one of these.")
    ]
    model_pattern: Annotated[
        str | None,
        Meta(description="Regular expression of the whole name that the device reports."),
    ] = None
    memory_gib: Annotated[Positive | None, Meta(description="Memory of one device, GiB.")] = None
    peaks: Annotated[list[Peak], Meta(description="Peak rates; empty: no MFU.")] = []
    power_w: Annotated[Positive | None, Meta(description="Rated power of one device, W.")] = None
    price_usd_per_hour: Annotated[
        Positive | None, Meta(description="Price of the whole job's devices, USD per hour.")
    ] = None
    launcher: Annotated[
        Launcher | None,
        Meta(
            description="single, torchrun, mpirun or srun (with torchrun on every node); null: "
            "single for one device, torchrun on one node, else srun."
        ),
    ] = None
    nodes: Annotated[Count, Meta(description="Hosts that share the job's devices evenly.")] = 1
    software: Annotated[
        Software, Meta(description="Interpreter, modules, variables, container of the processes.")
    ] = Software()
    job: Annotated[JobResources, Meta(description="What a training job asks a cluster for.")] = (
        JobResources()
    )
    threads: Annotated[
        Count | None, Meta(description="CPU cores a job asks for; null: all of the host.")
    ] = None
    variant_of: Annotated[
        Name | None,
        Meta(
            description="An entry that this one is another count or software of: what a study "
            "adapts for that one counts here too."
        ),
    ] = None
    source: Annotated[str | None, Meta(description="Where the entry's facts come from.")] = None

    @property
    def able(self) -> list[Name]:
        """The capabilities, without those that a job of one device has no use for."""
        return [c for c in self.capabilities if self.count > 1 or c not in BETWEEN_DEVICES]
