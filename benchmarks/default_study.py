"""The project, the default study's data and its baseline cell, for benchmarks."""

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import msgspec
import yaml

from benchmarks.process import run
from feedrate.config.plan import make_plan
from feedrate.config.project import load_project
from feedrate.config.spec import RunSpec
from feedrate.config.values import convert
from feedrate.config.workflow import find_dataset
from feedrate.devices.launch import launch_environment

ROOT = Path(__file__).resolve().parents[1]
FEEDRATE = [sys.executable, "-m", "feedrate"]


def default_spec() -> dict[str, Any]:
    """The spec of the first run of the default plan, as plain values."""
    config = yaml.safe_load((ROOT / "config/config.yaml").read_text())
    plan = make_plan(load_project(ROOT, config))
    return msgspec.to_builtins(next(iter(plan.runs.values())))


def job_environment() -> dict[str, str]:
    """The environment of a training job on this machine: threads and the like."""
    return launch_environment(convert(default_spec(), RunSpec, "default study"), os.environ)


def prepare_default(folder: Path) -> Path:
    """Fetch and prepare the default dataset under `folder`; returns the prepared folder."""
    config = load_project(ROOT, yaml.safe_load((ROOT / "config/config.yaml").read_text())).config
    settings = msgspec.json.encode(find_dataset(config, config.dataset)).decode()
    index, manifest = folder / "raw/index.json", folder / "prepared/manifest.json"
    fetch = [*FEEDRATE, "fetch_dataset", "--name", config.dataset, "--settings", settings]
    run([*fetch, "--out", str(index)], folder)
    prepare = [*FEEDRATE, "preprocess_dataset", "--index", str(index), "--settings", settings]
    run([*prepare, "--out", str(manifest)], folder)
    return manifest.parent


def run_worker(
    spec: dict[str, Any], prepared: Path, folder: Path, *options: str
) -> list[dict[str, Any]]:
    """The step events of a rank with this spec, without the job's other processes."""
    folder.mkdir()
    (folder / "spec.json").write_text(json.dumps(spec))
    command = [*FEEDRATE, "worker", "--run", str(folder), "--data", str(prepared), *options]
    run(command, folder, job_environment())
    events = [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]
    return [event for event in events if event["event"] == "step"]


def copy_project(folder: Path) -> None:
    """What planning and running need of the project, without data and results."""
    for part in ("Snakefile", "config", "workflow", "report", "envs", "profiles"):
        copy = shutil.copytree if (ROOT / part).is_dir() else shutil.copy
        copy(ROOT / part, folder / part)
