"""`python -m feedrate publish`: the runs of results.csv as runs of an experiment tracker, with
their identity, so that a second call sends only what is new."""

import argparse
import importlib.util
import io
import math
import os
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout, suppress
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from feedrate.cli.display import output
from feedrate.core.errors import MASK, Masker, UsageError
from feedrate.core.files import digest_value
from feedrate.core.paths import RESULTS
from feedrate.core.scrub import without_secrets
from feedrate.jobs.trackers import NEEDS, PROJECT, lacks, set_defaults, trackio_server
from feedrate.report.text import counted
from feedrate.results.columns import RUNS
from feedrate.results.comparison import record_of, results_csv
from feedrate.results.files import read_csv
from feedrate.results.schema import VALUES

METRICS = [c for c in RUNS if c.name in VALUES and c.kind in ("integer", "number")]
IDENTITY = ("study", "device", "cell", "repeat", "spec_digest", "started_at")
MOST = 100
"""Settings that MLflow takes at once."""


class Run(NamedTuple):
    """A run as trackers take it."""

    identity: str
    name: str
    status: str
    settings: dict[str, Any]
    metrics: dict[str, float]
    started_ms: int | None


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of this command."""
    parser.add_argument("--to", required=True, choices=sorted(NEEDS), help="the tracker")
    told = "its project or experiment; default: %(default)s"
    parser.add_argument("--project", default=PROJECT, help=told)
    told = "a folder of results, or a file"
    parser.add_argument("results", nargs="?", type=Path, default=Path(RESULTS), help=told)


def publish(options: argparse.Namespace) -> int:
    """Send the runs that the tracker does not have; return the exit code."""
    name = options.to
    if importlib.util.find_spec(name) is None:
        has = [other for other in sorted(NEEDS) if importlib.util.find_spec(other)]
        raise UsageError(
            f"--to {name}: not allowed, because this Python has no package {name}; allowed: "
            f"{', '.join(has) or 'none'} (.venv/bin/pip install --no-deps -r "
            "requirements/trackers.txt)"
        )
    if found := lacks(name):
        raise UsageError(f"--to {found}")
    try:
        table = results_csv(options.results)
        runs = list(read_runs(table))
    except (OSError, ValueError) as error:
        raise UsageError(f"{error}") from None
    set_defaults(table.parent)
    told = io.StringIO()
    try:
        with redirect_stdout(told), redirect_stderr(told):
            sent = SENDERS[name](runs, options.project)
    except Exception as error:  # of the tracker, whose errors have no common class
        raise UsageError(f"{name}: {type(error).__name__}: {error}") from None
    finally:  # addresses of runs, which may have passwords
        print(Masker()(told.getvalue()), end="")
    output().print(f"{counted(sent, 'run')} sent to {name}, {len(runs) - sent} there already.")
    return 0


def read_runs(table: Path) -> Iterator[Run]:
    """The runs of results.csv that were started, with the settings of their records."""
    numbers, mask = {column.name for column in METRICS}, Masker()
    for row in read_csv(table, RUNS):
        if row["status"] == "unsupported" or row.get("measured_as"):
            continue
        told = {k: v for k, v in row.items() if k not in numbers and v not in (None, "")}
        spec = {"spec": (record_of(row, table) or {}).get("spec") or {}}
        (flat,) = pd.json_normalize(spec).to_dict("records")  # keys as spec.settings.train.seed
        settings = told | {k: v for k, v in flat.items() if v is not None and v != {}}
        shown = {k: without_secrets(mask(str(v)), k) for k, v in settings.items()}
        settings = {k: v if shown[k] == str(v) else MASK for k, v in settings.items()}
        started = row.get("started_at")
        identity = digest_value([row.get(name) for name in IDENTITY])[:16]
        known = {n: row[n] for n in sorted(numbers) if row.get(n) is not None}
        yield Run(
            identity,
            f"{row['study']} {row['device']} {row['cell']} rep{row['repeat']} {identity[:4]}",
            row["status"],
            settings | {"feedrate_run": identity},
            {n: value for n, value in known.items() if math.isfinite(value)},
            int(datetime.fromisoformat(started).timestamp() * 1000) if started else None,
        )


def _to_mlflow(runs: list[Run], project: str) -> int:
    """Send runs to the server or folder of MLFLOW_TRACKING_URI; return how many were new."""
    from mlflow import MlflowClient
    from mlflow.entities import Metric, Param

    client, sent = MlflowClient(), 0
    found = client.get_experiment_by_name(project)
    experiment = found.experiment_id if found else client.create_experiment(project)
    for run in runs:
        if client.search_runs([experiment], f"tags.feedrate_run = '{run.identity}'"):
            continue
        tags = {"feedrate_status": run.status}
        made = client.create_run(experiment, run.started_ms, tags, run.name).info.run_id
        params = [Param(key, str(value)) for key, value in run.settings.items()]
        for start in range(0, len(params), MOST):
            client.log_batch(made, params=params[start : start + MOST])
        at_ms = run.started_ms or 0
        client.log_batch(made, [Metric(key, n, at_ms, 0) for key, n in run.metrics.items()])
        client.set_tag(made, "feedrate_run", run.identity)  # last: now it is complete
        client.set_terminated(made, "FINISHED" if run.status == "ok" else "FAILED")
        sent += 1
    return sent


def _to_trackio(runs: list[Run], project: str) -> int:
    """Write runs into trackio's database (TRACKIO_DIR) or space; return how many were new."""
    import trackio

    if server := trackio_server():
        return _to_trackio_server(runs, project, server)
    known: set[str] = set()
    with suppress(ValueError):  # there is no such project yet
        known = {run.name for run in trackio.Api().runs(project)}
    new = [run for run in runs if run.name not in known]
    off = {"auto_log_cpu": False, "auto_log_gpu": False, "embed": False}
    for run in new:
        trackio.init(project, run.name, config=run.settings, **off)
        trackio.log(run.metrics, step=0)
        trackio.finish()
    return len(new)


def _to_trackio_server(runs: list[Run], project: str, address: str) -> int:
    """Send runs to trackio's own server; return how many were new. Its errors are raised, where
    `trackio.init` only warns of them and keeps the run in a folder here."""
    from trackio import RemoteClient

    in_address = "write_token=" in address
    token = None if in_address else os.environ["TRACKIO_WRITE_TOKEN"].strip()
    server = RemoteClient(address, write_token=token)
    found = server.predict(api_name="/get_runs_for_project", project=project)
    known = {run["name"] for run in found}
    new = [run for run in runs if run.name not in known]
    for run in new:
        # Its identity is the server's too: a run that two calls send at once is stored once.
        who = {"project": project, "run": run.name, "run_id": run.identity, "log_id": run.identity}
        told = {"metrics": run.metrics, "step": 0, "config": run.settings}
        server.predict(api_name="/bulk_log", logs=[{**who, **told}], hf_token=None)
    return len(new)


def _to_wandb(runs: list[Run], project: str) -> int:
    """Send runs to W&B or, with WANDB_MODE=offline, into files for `wandb sync`; return how many.
    Their identity is W&B's too, so a run that is sent again replaces itself."""
    import wandb

    for run in runs:
        who: dict[str, Any] = {"id": run.identity, "name": run.name, "resume": "allow"}
        with wandb.init(project=project, config=run.settings, tags=[run.status], **who) as made:
            made.log(run.metrics)
    return len(runs)


SENDERS = {"mlflow": _to_mlflow, "trackio": _to_trackio, "wandb": _to_wandb}
"""The function that sends runs to a project of a tracker, and returns how many were new."""
