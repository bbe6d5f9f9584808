"""Specs of jobs, as far as launching them goes."""

from typing import Any

from feedrate.config.spec import RunSpec, Software
from tiny_spec import tiny_spec


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
    return tiny_spec(
        device=device,
        kind=kind,
        count=count,
        nodes=nodes,
        launcher=launcher,
        software=Software(**software),
        cell="workers=0,decode=host",
        model={"checkpoint": checkpoint},
        hpu={"mode": mode},
        protocol={"steps": 3, "ceiling_s": 0.0},
    )
