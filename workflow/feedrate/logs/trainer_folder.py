"""What a Trainer says of a run, from any folder that it left: ours or a published one."""

from pathlib import Path

from feedrate.logs.tensorboard_files import summary_metrics
from feedrate.logs.text import printed_metrics, read_log
from feedrate.logs.trainer_files import TrainerFigures, figures, train_metrics

LOGS = ("*.log", "*.out", "*.txt")


def read_trainer_folder(folder: Path, library: str = "") -> TrainerFigures:
    """The Trainer's figures from its JSON files, else TensorBoard, else printed text.

    No events of ours are needed. Rates are taken as they stand and never recomputed from
    `train_runtime`, which includes warm-up and graph compilation.
    """
    metrics = train_metrics(folder)
    if "train_runtime" not in metrics:
        metrics = summary_metrics(folder) | metrics
    if "train_runtime" not in metrics:
        for path in sorted(p for pattern in LOGS for p in folder.glob(pattern)):
            metrics = printed_metrics(read_log(path)) | metrics
    return figures(metrics, library)
