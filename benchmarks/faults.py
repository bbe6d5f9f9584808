"""Six faults planted in small trainings: does the product name each of them, and none where there
is none?

BridgeTower tiny trains on generated pictures that were decoded in advance, so a clean run hardly
waits for data.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from benchmarks.default_study import ROOT, make_store_for, prepare_default
from benchmarks.figure import Figure
from benchmarks.planted_worker import VARIABLE
from feedrate.config.devices import Device
from feedrate.config.plan import make_plan
from feedrate.config.project import Project
from feedrate.config.spec import RunSpec, Software
from feedrate.config.study import Study
from feedrate.config.values import convert
from feedrate.config.workflow import Generated, WorkflowConfig
from feedrate.core.files import write_json
from feedrate.data.manifest import MANIFEST, STORE_INDEX
from feedrate.devices.host import memory_gib
from feedrate.flow.data import job
from feedrate.results.assemble import build_record
from feedrate.results.collect import cell_rows, run_table
from feedrate.results.record import Record
from feedrate.results.study_plan import StudyPlan

DEVICES = {
    name: Device(label="CPU", kind="cpu", capabilities=[], memory_gib=memory_gib(), count=ranks)
    for name, ranks in (("cpu", 1), ("cpu-x2", 2))
}
SETUPS: dict[str, tuple[str, dict[str, Any]]] = {
    "serial": ("cpu", {"loader.workers": 0, "train.batch_size": 8}),
    "workers": (
        "cpu",
        {"loader.workers": 1, "loader.persistent_workers": True, "train.batch_size": 8},
    ),
    "ranks": ("cpu-x2", {"loader.workers": 0, "train.batch_size": 16}),
}
"""Device and settings by the name of a clean run."""


class Fault(NamedTuple):
    """A fault, and the answer that names it."""

    setup: str
    answer: str
    planted: dict[str, Any] = {}
    """The kind and its options; `seconds` as a share of a clean step, `limit_gib` of its peak."""
    busy_cores: int = 0
    """Cores that a foreign process keeps busy."""


READ = {"kind": "slow_read", "batch": 8}
FAULTS = {
    "slow-storage": Fault("serial", "data loading", READ | {"seconds": 0.4}),
    "slow-worker": Fault("workers", "data loading", READ | {"seconds": 2.0}),
    "slow-rank": Fault(
        "ranks", "slow rank", {"kind": "slow_backward", "seconds": 0.4, "only_rank": 1}
    ),
    "slow-network": Fault("ranks", "gradient exchange", {"kind": "slow_exchange", "seconds": 0.4}),
    "little-memory": Fault("serial", "memory", {"kind": "limited_memory", "limit_gib": 0.95}),
    "foreign-process": Fault("ranks", "disturbed", busy_cores=1),
}
CLEAN = ("computing", "launching", "")
"""Right answers to a clean run: a tiny model's kernels are short; the last names no limit."""


def project() -> Project:
    """A study in which each clean run and each fault is a level."""
    settings = {name: of_setup for name, (_, of_setup) in SETUPS.items()}
    settings |= {name: settings[fault.setup] for name, fault in FAULTS.items()}
    values = {
        "title": "Planted faults",
        "question": "Are they named?",
        "source": {"title": "none"},
        "settings": {
            "model": {"name": "bridgetower", "size": "tiny"},
            "loader": {"decode": "cache", "max_tokens": 32},
            "train": {"precision": "fp32"},
        },
        "protocol": {"steps": 24, "warmup_steps": 4, "ceiling_s": 3.0, "repeats": 1},
        "factors": {"run": {"bundles": settings, "levels": [*settings]}},
        "baseline": {"run": "serial"},
    }
    config = WorkflowConfig(
        studies=["faults"],
        devices=[*DEVICES],
        dataset="generated",
        datasets={"generated": Generated(train=480)},
    )
    studies = {"faults": convert(values, Study, "planted faults")}
    return Project(config=config, devices=DEVICES, studies=studies, published={})


def measure() -> Iterator[Figure]:
    """How many faults are named, and how many clean runs have a false alarm."""
    with tempfile.TemporaryDirectory() as name:
        folder, planned = Path(name), project()
        runs, data = make_plan(planned).runs, prepare_default(folder)
        records: dict[str, Record] = {}
        spec = runs["faults", "cpu", "run=serial", 1]
        store = make_store_for(spec.settings, data, folder) / STORE_INDEX
        for name, fault in ({setup: Fault(setup, "") for setup in SETUPS} | FAULTS).items():
            planted = dict(fault.planted)
            if planted:
                clean = records[fault.setup].measurement
                assert clean, f"the clean run of {fault.setup} failed"
                units = {"seconds": clean.step_time_median_s, "limit_gib": clean.peak_memory_gib}
                planted |= {key: planted[key] * units[key] for key in planted.keys() & units}
            spec = runs["faults", SETUPS[fault.setup][0], f"run={name}", 1]
            out = train(folder, spec, planted, fault.busy_cores, data=data / MANIFEST, store=store)
            records[name] = build_record(out, DEVICES[spec.device])
        plan, answers = StudyPlan(project=planned, runs=[]), {}
        for row in cell_rows(run_table([*records.values()], plan), plan):
            answer = row["limit"] if row["status"] in ("ok", "out_of_memory") else row["status"]
            disturbed = row["noisy"] or row["disturbed"] or row["status"] == "invalid"
            answers[row["run"]] = "disturbed" if disturbed else str(answer)
    named = [name for name, fault in FAULTS.items() if answers[name] == fault.answer]
    note = "; ".join(f"{name}: {answers[name]}" for name in FAULTS)
    yield Figure("planted faults named", len(named), len(FAULTS), "runs", note, at_most=False)
    alarms = [setup for setup in SETUPS if answers[setup] not in CLEAN]
    note = "; ".join(f"{setup}: {answers[setup]}" for setup in SETUPS)
    yield Figure("false alarms in clean runs", len(alarms), 0, "runs", note)


def train(
    folder: Path, spec: RunSpec, planted: dict[str, Any], busy_cores: int, **inputs: Path
) -> Path:
    """Run a job with this fault; return the run's folder."""
    program = folder / "python"
    # Starts planted_worker.py where a job asks for `feedrate worker`.
    program.write_text(
        "#!/bin/sh\n"
        'case "$*" in\n'
        '  "-m feedrate worker "*) shift 3;;\n'
        '  "-u -m feedrate worker "*) shift 4;;\n'
        f'  *) exec {sys.executable} "$@";;\n'
        "esac\n"
        f'exec {sys.executable} -u -m benchmarks.planted_worker "$@"\n',
        encoding="utf-8",
    )
    program.chmod(0o755)
    environment = {"PYTHON_EXEC": str(program), VARIABLE: json.dumps(planted)}
    software = Software(python=str(program), environment=environment)
    file, out = folder / "spec.json", folder / f"runs/{spec.device}/{spec.cell}/rep1"
    write_json(file, msgspec.to_builtins(msgspec.structs.replace(spec, software=software)))
    # Of the last try, which records a fault of the machine too.
    words = job("train", spec=file, out=out, **{"try": 1}, **inputs)
    core = max(os.sched_getaffinity(0))
    spin = ["taskset", "-c", str(core), sys.executable, "-c", "while True: pass"]
    neighbours = [subprocess.Popen(spin) for _ in range(busy_cores)]
    try:
        subprocess.run(
            f"{sys.executable} -m feedrate {words}",
            shell=True,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'workflow'}"},
            check=False,
            capture_output=True,
        )
    finally:
        for neighbour in neighbours:
            neighbour.kill()
            neighbour.wait()
    return out
