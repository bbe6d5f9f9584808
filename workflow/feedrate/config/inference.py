"""The settings that only an inference run has, and what such a run does not take."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Literal

from msgspec import Meta

from feedrate.config.base import Strict

if TYPE_CHECKING:
    from feedrate.config.settings import RunSpec

Task = Literal["training", "inference"]


class InferenceSettings(Strict, kw_only=True):
    """How forward passes are timed (task: inference); batch size, precision and execution are those
    of `train`."""

    head: Annotated[
        Literal["contrastive", "matching"],
        Meta(
            description="What the model answers: an embedding of each picture and text, or whether "
            "they belong together (bridgetower)."
        ),
    ] = "contrastive"
    preprocessing: Annotated[
        Literal["out", "in"],
        Meta(
            description="Whether a pass's time begins with its inputs on the device, or with JPEG "
            "files and captions."
        ),
    ] = "out"


def inference_faults(spec: "RunSpec") -> Iterator[str]:
    """What a run of the task `inference` has no use for, each with what is allowed."""
    settings, protocol = spec.settings, spec.protocol
    loader, train = settings.loader, settings.train
    asked = {
        "train.gradient_accumulation": (train.gradient_accumulation, 1),
        "train.strategy": (train.strategy, "ddp"),
        "train.cpu_offload": (train.cpu_offload, False),
        "model.checkpointing": (settings.model.checkpointing, False),
        "loader.workers": (loader.workers, 0),
        "loader.random_crop": (loader.random_crop, 0),
        "loader.random_flip": (loader.random_flip, False),
        "loader.colour_jitter": (loader.colour_jitter, 0),
        "protocol.evaluate": (protocol.evaluate, False),
        "protocol.save_checkpoints": (protocol.save_checkpoints, False),
    }
    for key, (value, allowed) in asked.items():
        if value != allowed:
            yield f"{key}: {value} is for training, and this is inference; leave it {allowed}"
    if train.precision == "fp8":
        yield "train.precision: fp8 is for training, and this is inference; use bf16"
    decodes = ("reference", "host")
    if settings.inference.preprocessing == "in" and loader.decode not in decodes:
        yield (
            f"loader.decode: {loader.decode} prepares pictures before they are asked for, so "
            f"inference.preprocessing: in cannot time it; use {' or '.join(decodes)}"
        )
    if loader.decode == "device":
        yield "loader.decode: device is for training, and this is inference; use host or cache"
