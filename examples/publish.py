"""Send the runs of results.csv to mlflow, trackio or wandb; a second call sends only new runs.

    python examples/publish.py mlflow [results/results.csv]

It needs only the tracker's package, and the tracker's variables say where runs go, such as
MLFLOW_TRACKING_URI, TRACKIO_DIR, or WANDB_MODE=offline.
"""

import csv
import hashlib
import math
import sys
from collections.abc import Iterator
from typing import NamedTuple

PROJECT = "feedrate"
IDENTITY = ("study", "device", "cell", "repeat", "spec_digest", "started_at")


class Run(NamedTuple):
    """A row of results.csv: texts are settings, numbers are metrics."""

    identity: str
    name: str
    settings: dict[str, str]
    metrics: dict[str, float]


def read_runs(table: str) -> Iterator[Run]:
    """The runs of results.csv that were started."""
    with open(table, newline="", encoding="utf-8") as stream:  # noqa: PTH123
        for row in csv.DictReader(stream):
            if row["status"] == "unsupported" or row["measured_as"]:
                continue
            text = "\0".join(row[column] for column in IDENTITY)
            identity = hashlib.sha256(text.encode()).hexdigest()[:16]
            name = f"{row['study']} {row['device']} {row['cell']} rep{row['repeat']} {identity[:4]}"
            settings, metrics = {}, {}
            for column, value in row.items():
                try:
                    metrics[column] = float(value)
                except ValueError:
                    settings[column] = value
            metrics = {column: value for column, value in metrics.items() if math.isfinite(value)}
            yield Run(identity, name, {k: v for k, v in settings.items() if v}, metrics)


def to_mlflow(run: Run) -> None:
    """Make a run of MLflow's experiment, unless it has it."""
    import mlflow

    mlflow.set_experiment(PROJECT)
    known = f"tags.feedrate_run = '{run.identity}'"
    if mlflow.search_runs(filter_string=known, output_format="list"):
        return
    with mlflow.start_run(run_name=run.name):
        mlflow.log_params(run.settings)
        mlflow.log_metrics(run.metrics)
        mlflow.set_tag("feedrate_run", run.identity)  # last: now it is complete


def to_trackio(run: Run) -> None:
    """Make a run of trackio's project, unless it has it."""
    import trackio

    try:
        known = [one.name for one in trackio.Api().runs(PROJECT)]
    except ValueError:  # there is no such project yet
        known = []
    if run.name not in known:
        trackio.init(project=PROJECT, name=run.name, config=run.settings)
        trackio.log(run.metrics)
        trackio.finish()


def to_wandb(run: Run) -> None:
    """Make a run of W&B, or replace it: its identity is W&B's too."""
    import wandb

    who = {"id": run.identity, "name": run.name, "resume": "allow"}
    with wandb.init(project=PROJECT, config=run.settings, **who) as made:
        made.log(run.metrics)


if __name__ == "__main__":
    send = {"mlflow": to_mlflow, "trackio": to_trackio, "wandb": to_wandb}[sys.argv[1]]
    for run in read_runs(sys.argv[2] if len(sys.argv) > 2 else "results/results.csv"):
        send(run)
