"""The device registry's types: what a device is, can do, and reaches at best."""

from typing import Annotated

from msgspec import Meta

from feedrate.config.base import Count, Name, Positive, Strict
from feedrate.config.settings import Kind, Launcher


class Peak(Strict, kw_only=True):
    """Peak matrix-multiply rate of one device (one accelerator, not the job)."""

    precision: Annotated[Name, Meta(description="fp32 or bf16: which settings it applies to.")]
    datasheet_tflops: Annotated[
        Positive | None, Meta(description="Dense rate of the data sheet, TFLOP/s.")
    ] = None
    achievable_tflops: Annotated[
        Positive | None, Meta(description="Best rate that others measured, TFLOP/s.")
    ] = None
    source: Annotated[str, Meta(description="Where the numbers come from.", min_length=1)]


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
        Meta(description="Regular expression that the reported device model must match."),
    ] = None
    memory_gib: Annotated[Positive | None, Meta(description="Memory of one device, GiB.")] = None
    peaks: Annotated[list[Peak], Meta(description="Peak rates; empty: no MFU.")] = []
    power_w: Annotated[Positive | None, Meta(description="Rated power of one device, W.")] = None
    price_usd_per_hour: Annotated[
        Positive | None, Meta(description="Price of the whole job's devices, USD per hour.")
    ] = None
    launcher: Annotated[
        Launcher | None,
        Meta(description="single, torchrun or mpirun; null: single for one device, else torchrun."),
    ] = None
    python: Annotated[
        str | None,
        Meta(description="Interpreter of the training jobs; null: the one that runs Snakemake."),
    ] = None
    threads: Annotated[
        Count | None, Meta(description="CPU cores a job asks for; null: all of the host.")
    ] = None
    source: Annotated[str | None, Meta(description="Where the entry's facts come from.")] = None
