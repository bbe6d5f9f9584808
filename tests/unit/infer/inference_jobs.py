"""Specs of inference runs of the tiny models, and their events."""

import json
from pathlib import Path
from typing import Any

from feedrate.config.settings import (
    InferenceSettings,
    LoaderSettings,
    ModelSettings,
    Protocol,
    RunSpec,
    Settings,
    TrainSettings,
)

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
    settings = Settings(
        model=ModelSettings(name=model, size="tiny"),
        loader=LoaderSettings(**{"max_tokens": 8, "decode": "host", **(loader or {})}),
        train=TrainSettings(**{"batch_size": 2, "precision": "fp32", **train}),
        inference=InferenceSettings(head=head, preprocessing=preprocessing),
    )
    return RunSpec(
        task="inference",
        study="study",
        device=kind,
        kind=kind,
        count=1,
        launcher="single",
        cell="batch=2",
        levels={"batch": 2},
        repeat=1,
        seed=7,
        dataset="tiny",
        settings=settings,
        protocol=Protocol(**{"steps": STEPS, "warmup_steps": WARMUP, **(protocol or {})}),
    )
