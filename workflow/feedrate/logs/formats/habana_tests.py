"""Result files of optimum-habana's tests: a device's figures by test (tests/baselines/fixture), and
the older files of one model (tests/baselines). https://github.com/huggingface/optimum-habana"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from feedrate.core.errors import LogError
from feedrate.jobs.causes import Cause
from feedrate.logs.reading import Found, load_json
from feedrate.logs.trainer import evaluation_figures

IMPORTS = ("*.json",)

_DEVICE = re.compile(r"gaudi\d?")
_RATE = "train_samples_per_second"


def read(path: Path) -> Iterator[Found]:
    """Each training in the file that is under the name of a device. Raises LogError."""
    found = list(_trainings(load_json(path), []))
    if not found:
        raise LogError(f"{path.name}: JSON without a training's figures by device")
    yield from found


def _trainings(value: Any, keys: list[str]) -> Iterator[Found]:
    if not isinstance(value, dict):
        return
    device = next((key for key in keys if _DEVICE.fullmatch(key)), "")
    if device and _RATE in value:
        yield Found(
            metrics=value,
            evaluation=evaluation_figures("validation", value),
            cause=Cause("success", f"{_RATE}: {value[_RATE]}"),
            label=" ".join(key for key in keys if key not in (device, "distribution")),
            device="gaudi" if device == "gaudi1" else device,
            library="optimum-habana",
            note="figures that the tests expect",
        )
        return
    for key, inner in value.items():
        yield from _trainings(inner, [*keys, key])
