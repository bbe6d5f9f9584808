"""Whether a job got what it asked for; a job on the wrong device deserves another try elsewhere."""

import json
import os
from collections.abc import Mapping

from feedrate import variables
from feedrate.config.device import is_called
from feedrate.config.settings import RunSpec
from feedrate.devices.base import DeviceError


def check_count(spec: RunSpec, world_size: int, local_ranks: int) -> None:
    """Raise DeviceError where the launcher started other processes than the job asked for."""
    asked = (spec.count, spec.count // spec.nodes)
    if (world_size, local_ranks) != asked:
        raise DeviceError(
            f"the job asked for {asked[0]} processes, {asked[1]} on each node, and got "
            f"{world_size}, {local_ranks} on this one (launcher: {spec.launcher})"
        )


def check_model(spec: RunSpec, model: str, environment: Mapping[str, str] = os.environ) -> None:
    """Raise DeviceError where `model` (what the device calls itself) is not as registered."""
    try:
        pattern = json.loads(environment.get(variables.MODEL_PATTERNS, "{}")).get(spec.device)
    except (ValueError, AttributeError):
        raise DeviceError(
            f"{variables.MODEL_PATTERNS} is not JSON of {{device: pattern}}"
        ) from None
    if pattern and not is_called(model, pattern):
        raise DeviceError(
            f"the job asked for {spec.device} (model_pattern {pattern!r}) and got {model!r}"
        )
