"""Send the runs of results.csv to mlflow, trackio or wandb; a second call sends only new runs.

    python examples/publish.py mlflow [results/results.csv]

It needs only the tracker's package, and the tracker's variables say where runs go, such as
MLFLOW_TRACKING_URI, TRACKIO_DIR, or WANDB_MODE=offline.
"""

import csv
import hashlib
import math
import sys
from pathlib import Path

PROJECT = "feedrate"
IDENTITY = ("study", "device", "cell", "repeat", "spec_digest", "started_at")
Settings, Metrics = dict[str, str], dict[str, float]


def to_mlflow(identity: str, name: str, settings: Settings, metrics: Metrics) -> None:
    """Make a run of MLflow's experiment, unless it has it."""
    import mlflow

    mlflow.set_experiment(PROJECT)
    known = f"tags.feedrate_run = '{identity}'"
    if not mlflow.search_runs(filter_string=known, output_format="list"):
        with mlflow.start_run(run_name=name):
            mlflow.log_params(settings)
            mlflow.log_metrics(metrics)
            mlflow.set_tag("feedrate_run", identity)  # last: now it is complete


def to_trackio(_identity: str, name: str, settings: Settings, metrics: Metrics) -> None:
    """Make a run of trackio's project, unless it has it."""
    import trackio

    try:
        known = [run.name for run in trackio.Api().runs(PROJECT)]
    except ValueError:  # there is no such project yet
        known = []
    if name not in known:
        trackio.init(project=PROJECT, name=name, config=settings)
        trackio.log(metrics)
        trackio.finish()


def to_wandb(identity: str, name: str, settings: Settings, metrics: Metrics) -> None:
    """Make a run of W&B, or replace it: its identity is W&B's too."""
    import wandb

    who = {"id": identity, "name": name, "resume": "allow"}
    with wandb.init(project=PROJECT, config=settings, **who) as run:
        run.log(metrics)


if __name__ == "__main__":
    send = {"mlflow": to_mlflow, "trackio": to_trackio, "wandb": to_wandb}[sys.argv[1]]
    table = Path(sys.argv[2] if len(sys.argv) > 2 else "results/results.csv")
    for row in csv.DictReader(table.read_text(encoding="utf-8").splitlines()):
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
                if value:
                    settings[column] = value
        metrics = {column: value for column, value in metrics.items() if math.isfinite(value)}
        send(identity, name, settings, metrics)
