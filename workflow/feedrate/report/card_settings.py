"""What a model's card says beside its record and its scores: plain values for Snakemake."""

from typing import Any

from feedrate.config.base import Strict
from feedrate.config.plan import Project
from feedrate.config.settings import RunSpec
from feedrate.config.workflow import Hub
from feedrate.models.checkpoint import is_on_hub
from feedrate.report.settings import to_param


class CardSettings(Strict, kw_only=True):
    """Settings of `python -m feedrate.report.card`."""

    title: str
    """The study's."""
    device: str
    """The device's name for people."""
    base_model: str | None = None
    """Where the weights came from, if that is a repository of the hub."""
    dataset: str | None = None
    """The hub's repository of the data, if they are from there."""
    dataset_revision: str | None = None
    repository: str | None = None
    """Where the model is pushed."""
    place: str
    """The folder there."""


def card_settings(project: Project, spec: RunSpec) -> dict[str, Any]:
    """The `--settings` of the card of a run's model."""
    checkpoint = spec.settings.model.checkpoint
    data = project.config.datasets[spec.dataset]
    settings = CardSettings(
        title=project.studies[spec.study].title,
        device=project.devices[spec.device].label,
        base_model=checkpoint if checkpoint and is_on_hub(checkpoint) else None,
        dataset=data.name if isinstance(data, Hub) else None,
        dataset_revision=data.revision if isinstance(data, Hub) else None,
        repository=project.config.push_to_hub if spec.repeat == 1 else None,
        place=place(spec),
    )
    return to_param(settings)


def place(spec: RunSpec) -> str:
    """The folder of a cell's model in a repository that holds those of all cells."""
    return f"{spec.study}/{spec.device}/{spec.cell}"
