"""The project, the default study's data and its baseline cell, and jobs of feedrate."""

import json
import os
import shlex
import shutil
import sys
from pathlib import Path
from typing import Any

import msgspec
import yaml

from benchmarks.process import Usage, run
from feedrate.config.plan import make_plan
from feedrate.config.project import Project, load_project
from feedrate.config.settings import Settings
from feedrate.config.spec import RunSpec
from feedrate.config.values import convert
from feedrate.config.workflow import find_dataset
from feedrate.data.manifest import STORE_INDEX, store_folder, store_spec
from feedrate.devices.launch import launch_environment
from feedrate.flow.data import job

ROOT = Path(__file__).resolve().parents[1]


def default_project() -> Project:
    """The project with its default configuration."""
    return load_project(ROOT, yaml.safe_load((ROOT / "config/config.yaml").read_text()))


def default_spec() -> dict[str, Any]:
    """The spec of the first run of the default plan, as plain values."""
    plan = make_plan(default_project())
    return msgspec.to_builtins(next(iter(plan.runs.values())))


def job_environment() -> dict[str, str]:
    """The environment of a training job on this machine: threads and the like."""
    return launch_environment(convert(default_spec(), RunSpec, "default study"), os.environ)


def feedrate(folder: Path, program: str, /, **options: Any) -> Usage:
    """Run a job of feedrate to its end, with its log in `folder`."""
    words = shlex.split(job(program, **options))
    return run([sys.executable, "-m", "feedrate", *words], folder, job_environment())


def prepare_default(folder: Path) -> Path:
    """Fetch and prepare the default dataset under `folder`; returns the prepared folder."""
    config = default_project().config
    settings = find_dataset(config, config.dataset)
    index, manifest = folder / "raw/index.json", folder / "prepared/manifest.json"
    feedrate(folder, "fetch_dataset", name=config.dataset, settings=settings, out=index)
    feedrate(folder, "preprocess_dataset", index=index, settings=settings, out=manifest)
    return manifest.parent


def make_store_for(settings: Settings, prepared: Path, folder: Path) -> Path:
    """Make the store of decoded pictures that these settings need; return its folder."""
    store, spec = store_folder(settings, prepared), store_spec(settings)
    assert store is not None
    manifest, index = prepared / "manifest.json", store / STORE_INDEX
    feedrate(folder, "store_dataset", data=manifest, settings=spec, out=index)
    return store


def run_worker(
    spec: dict[str, Any], prepared: Path, folder: Path, options: str = ""
) -> list[dict[str, Any]]:
    """The step events of a rank with this spec, without the job's other processes."""
    folder.mkdir()
    (folder / "spec.json").write_text(json.dumps(spec))
    feedrate(folder, "worker", run=folder, data=prepared, options=options)
    events = [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]
    return [event for event in events if event["event"] == "step"]


def copy_project(folder: Path) -> None:
    """What planning and running need of the project, without data and results."""
    for part in ("Snakefile", "config", "workflow", "report", "envs", "profiles"):
        copy = shutil.copytree if (ROOT / part).is_dir() else shutil.copy
        copy(ROOT / part, folder / part)
