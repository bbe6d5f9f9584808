"""The spec of a run as small as it can be, with whatever a test wants otherwise."""

from typing import Any

from feedrate.config.settings import (
    HpuSettings,
    InferenceSettings,
    LoaderSettings,
    ModelSettings,
    Settings,
    TrainSettings,
)
from feedrate.config.spec import Protocol, RunSpec

Part = dict[str, Any] | None


def tiny_spec(
    *,
    model: Part = None,
    loader: Part = None,
    train: Part = None,
    hpu: Part = None,
    inference: Part = None,
    protocol: Part = None,
    **run: Any,
) -> RunSpec:
    """The tiny BridgeTower on the tiny dataset: 4 steps of 4 samples in fp32, on one CPU.

    The named parts are those of `settings`, and `protocol`; `run` is the rest of the spec.
    """
    settings = Settings(
        model=ModelSettings(**{"name": "bridgetower", "size": "tiny", **(model or {})}),
        loader=LoaderSettings(**{"max_tokens": 8, **(loader or {})}),
        train=TrainSettings(**{"batch_size": 4, "precision": "fp32", **(train or {})}),
        hpu=HpuSettings(**(hpu or {})),
        inference=InferenceSettings(**(inference or {})),
    )
    common: dict[str, Any] = {
        "study": "study",
        "device": "cpu",
        "kind": "cpu",
        "count": 1,
        "launcher": "single",
        "cell": "workers=0",
        "levels": {"workers": 0},
        "repeat": 1,
        "seed": 7,
        "dataset": "tiny",
        "settings": settings,
        "protocol": Protocol(**{"steps": 4, "warmup_steps": 1, **(protocol or {})}),
    }
    return RunSpec(**{**common, **run})
