"""TensorBoard event files, read with the tensorboard package (slow to import: only when needed)."""

from collections.abc import Iterator
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

from feedrate.jobs.causes import cause_of
from feedrate.logs.reading import Found, refuse_pointer
from feedrate.logs.trainer import evaluation_figures, number

ORDER = 2
FILES = ("**/events.out.tfevents.*",)
IMPORTS = ("events.out.tfevents.*",)


def read(path: Path) -> Iterator[Found]:
    """The run of an events file, resumed if its losses begin later than one interval of logging."""
    with path.open("rb") as stream:
        refuse_pointer(path, stream.read(64))
    scalars = read_scalars(path)
    if not scalars:
        return
    values = {}  # the last ones under the Trainer's own keys: `eval_loss` is at `eval/loss`
    for tag, points in scalars.items():
        group, _, key = tag.partition("/")
        values[key if group == "train" else f"{group}_{key}"] = points[-1][1]
    steps = [step for step, _ in scalars.get("train/loss", [])]
    every = min((after - before for before, after in pairwise(steps)), default=0)
    yield Found(
        metrics={key: value for key, value in values.items() if not key.startswith("eval_")},
        evaluation=evaluation_figures("validation", values),
        cause=cause_of([str(values)] if "train_runtime" in values else ()),
        resumed_from=steps[0] - every if every and steps[0] > every else None,
        order=3,
    )


def read_scalars(path: Path) -> dict[str, list[tuple[int, float]]]:
    """Pairs of step and finite value by tag of one file, in order, up to where it is damaged."""
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
    from tensorboard.backend.event_processing.event_file_loader import EventFileLoader
    from tensorboard.util.tensor_util import make_ndarray

    scalars: dict[str, list[tuple[int, float]]] = {}
    with suppress(DecodeError, ValueError, TypeError, OSError):
        for event in EventFileLoader(str(path)).Load():
            for value in event.summary.value:
                if value.metadata.plugin_data.plugin_name == "scalars":
                    figure = number(float(make_ndarray(value.tensor).item()))
                    if figure is not None:
                        scalars.setdefault(value.tag, []).append((event.step, figure))
    return scalars
