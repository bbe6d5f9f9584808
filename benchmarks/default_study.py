"""The default study's data and its baseline cell, for benchmarks."""

import os
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
    settings = repr(msgspec.to_builtins(find_dataset(config, config.dataset)))
    index, manifest = folder / "raw/index.json", folder / "prepared/manifest.json"
    module = [sys.executable, "-m"]
    run(
        [*module, "feedrate", "fetch-dataset", "--name", config.dataset]
        + ["--settings", settings, "--out", str(index)],
        folder,
    )
    run(
        [*module, "feedrate", "preprocess-dataset", "--index", str(index)]
        + ["--settings", settings, "--out", str(manifest)],
        folder,
    )
    return manifest.parent
