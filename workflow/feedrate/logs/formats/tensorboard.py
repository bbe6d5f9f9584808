"""TensorBoard event files, read with the tensorboard package (slow to import: only when needed)."""

from pathlib import Path

from feedrate.logs.trainer import number

ORDER = 2
FILES = ("**/events.out.tfevents.*",)


def metrics(folder: Path) -> dict[str, float]:
    """The last value of each scalar below `folder`, under the Trainer's own keys.

    The Trainer's callback writes `train_runtime` as `train/train_runtime` and `eval_loss` as
    `eval/loss`.
    """
    values: dict[str, float] = {}
    for path in sorted(folder.glob(FILES[0])):
        for tag, points in read_scalars(path).items():
            group, _, key = tag.partition("/")
            values[key if group == "train" else f"{group}_{key}"] = points[-1][1]
    return values


def read_scalars(path: Path) -> dict[str, list[tuple[int, float]]]:
    """Pairs of step and value for each tag in one file, in file order; finite values only.

    A truncated or damaged file gives what precedes the damage.
    """
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
    from tensorboard.backend.event_processing.event_file_loader import EventFileLoader
    from tensorboard.util.tensor_util import make_ndarray

    scalars: dict[str, list[tuple[int, float]]] = {}
    try:
        for event in EventFileLoader(str(path)).Load():
            for value in event.summary.value:
                if value.metadata.plugin_data.plugin_name == "scalars":
                    figure = number(float(make_ndarray(value.tensor).item()))
                    if figure is not None:
                        scalars.setdefault(value.tag, []).append((event.step, figure))
    except (DecodeError, ValueError, TypeError, OSError):
        return scalars
    return scalars
