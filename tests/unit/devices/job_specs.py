"""Specs of jobs, as far as launching them goes."""

from typing import Any

from feedrate.config.hpu import HpuSettings
from feedrate.config.settings import (
    LoaderSettings,
    ModelSettings,
    Protocol,
    RunSpec,
    Settings,
    TrainSettings,
)
from feedrate.config.software import Software


def make_job(
    launcher: str = "single",
    count: int = 1,
    *,
    kind: str = "cpu",
    device: str = "cpu",
    nodes: int = 1,
    mode: str = "lazy",
    checkpoint: str | None = None,
    **software: Any,
) -> RunSpec:
    """A spec; `software` are the fields of that."""
    model = ModelSettings(name="bridgetower", size="tiny", checkpoint=checkpoint)
    return RunSpec(
        study="study",
        device=device,
        kind=kind,
        count=count,
        nodes=nodes,
        launcher=launcher,
        software=Software(**software),
        cell="workers=0,decode=host",
        levels={"workers": 0},
        repeat=1,
        seed=7,
        dataset="tiny",
        settings=Settings(
            model=model,
            loader=LoaderSettings(max_tokens=8),
            train=TrainSettings(batch_size=4, precision="fp32"),
            hpu=HpuSettings(mode=mode),
        ),
        protocol=Protocol(steps=3, warmup_steps=1, ceiling_s=0.05),
    )
