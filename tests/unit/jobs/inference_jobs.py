"""Specs of inference runs of the tiny models, and their events."""

import json
from pathlib import Path
from typing import Any

from feedrate.config.spec import RunSpec
from tiny_spec import tiny_spec

STEPS, WARMUP = 5, 2


class Events:
    """The events of a rank."""

    def __init__(self, events: list[dict[str, Any]]) -> None:
        self.all = events

    def named(self, name: str) -> list[dict[str, Any]]:
        """Those of a name, in order."""
        return [event for event in self.all if event["event"] == name]

    def one(self, name: str) -> dict[str, Any]:
        """The only one of a name."""
        (event,) = self.named(name)
        return event


def read_events(path: Path) -> Events:
    """The events of a file."""
    return Events([json.loads(line) for line in path.read_text().splitlines()])


def make_spec(
    *,
    model: str = "bridgetower",
    head: str = "contrastive",
    preprocessing: str = "out",
    kind: str = "cpu",
    loader: dict[str, Any] | None = None,
    protocol: dict[str, Any] | None = None,
    **train: Any,
) -> RunSpec:
    """An inference run of a tiny model: 5 passes of 2 pairs, the first 2 left out."""
    return tiny_spec(
        task="inference",
        device=kind,
        kind=kind,
        cell="batch=2",
        levels={"batch": 2},
        model={"name": model},
        loader={"decode": "host", "max_tokens": 6, **(loader or {})},
        train={"batch_size": 2, **train},
        inference={"head": head, "preprocessing": preprocessing},
        protocol={"steps": STEPS, "warmup_steps": WARMUP, **(protocol or {})},
    )
