"""Six faults planted in small trainings: does the product name each of them, and none where there
is none?

BridgeTower tiny trains on generated pictures that were decoded in advance, so a clean run hardly
waits for data. docs/measurement.md has the larger table that the first version was judged by.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from benchmarks.default_study import ROOT, prepare_default
from benchmarks.figure import Figure
from benchmarks.loading import make_store_for
from benchmarks.planted_worker import VARIABLE
from feedrate.config.devices import Device
from feedrate.config.project import Project
from feedrate.config.settings import Settings
from feedrate.config.spec import Protocol, RunSpec, Software, StudyProtocol
from feedrate.config.study import Factor, Source, Study
from feedrate.config.values import convert
from feedrate.config.workflow import WorkflowConfig
from feedrate.core.files import write_json
from feedrate.data.manifest import MANIFEST
from feedrate.devices.host import memory_gib
from feedrate.results.assemble import build_record
from feedrate.results.collect import cell_rows, run_table
from feedrate.results.record import Record
from feedrate.results.study_plan import StudyPlan

STUDY = "faults"
DEVICE = Device(label="CPU", kind="cpu", capabilities=[], memory_gib=memory_gib())
PROTOCOL = Protocol(steps=24, warmup_steps=4, ceiling_s=3.0)


class Setup(NamedTuple):
    """What is trained."""

    ranks: int
    workers: int
    batch: int


SETUPS = {"serial": Setup(1, 0, 8), "workers": Setup(1, 1, 8), "ranks": Setup(2, 0, 16)}


class Fault(NamedTuple):
    """A fault, and the answers that name it."""

    kind: str
    setup: str
    answers: tuple[str, ...]
    delay: float = 0.0
    """In each step, as a share of a clean step."""
    only_rank: int | None = None
    memory: float = 0.0
    """The device's memory over a clean run's peak."""
    busy_cores: int = 0
    """Cores that a foreign process keeps busy."""


FAULTS = {
    "slow-storage": Fault("slow_read", "serial", ("data loading",), 0.4),
    "slow-worker": Fault("slow_read", "workers", ("data loading",), 2.0),
    "slow-rank": Fault("slow_backward", "ranks", ("slow rank",), 0.4, only_rank=1),
    "slow-network": Fault("slow_exchange", "ranks", ("gradient exchange",), 0.4),
    "little-memory": Fault("limited_memory", "serial", ("memory",), memory=0.95),
    "foreign-process": Fault("", "ranks", ("disturbed",), busy_cores=1),
}
CLEAN = ("computing", "launching", "")
"""Right answers to a clean run: a tiny model's kernels are short; the last names no limit."""


def measure() -> Iterator[Figure]:
    """How many faults are named, and how many clean runs have a false alarm."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        data, interpreter = prepare_default(folder), write_interpreter(folder)
        make_store_for(settings_of("serial"), data, folder)
        records = [run(folder, data, interpreter, setup, setup) for setup in SETUPS]
        clean = {setup: r.measurement for setup, r in zip(SETUPS, records, strict=True)}
        for name, fault in FAULTS.items():
            measurement = clean[fault.setup]
            assert measurement, f"the clean run of {fault.setup} failed"
            planted: dict[str, Any] = {"kind": fault.kind} if fault.kind else {}
            if fault.delay:
                planted["seconds"] = fault.delay * (measurement.step_time_median_s or 0.0)
            if fault.kind == "slow_read":
                planted["batch"] = SETUPS[fault.setup].batch
            if fault.only_rank is not None:
                planted["only_rank"] = fault.only_rank
            if fault.memory:
                planted["limit_gib"] = fault.memory * (measurement.peak_memory_gib or 0.0)
            faulty = run(folder, data, interpreter, name, fault.setup, planted, fault.busy_cores)
            records.append(faulty)
        answers = answers_of(records)
    named = [name for name, fault in FAULTS.items() if answers[name] in fault.answers]
    note = "; ".join(f"{name}: {answers[name]}" for name in FAULTS)
    yield Figure("planted faults named", len(named), len(FAULTS), "runs", note, at_most=False)
    alarms = [setup for setup in SETUPS if answers[setup] not in CLEAN]
    note = "; ".join(f"{setup}: {answers[setup]}" for setup in SETUPS)
    yield Figure("false alarms in clean runs", len(alarms), 0, "runs", note)


def settings_of(setup: str) -> Settings:
    """The settings of a setup's runs."""
    _, workers, batch = SETUPS[setup]
    loader = {"decode": "cache", "workers": workers, "max_tokens": 32}
    loader |= {"persistent_workers": workers > 0}
    values = {
        "model": {"name": "bridgetower", "size": "tiny"},
        "loader": loader,
        "train": {"precision": "fp32", "batch_size": batch},
    }
    return convert(values, Settings, setup)


def write_interpreter(folder: Path) -> Path:
    """A program that starts planted_worker.py where a job asks for `feedrate worker`."""
    program = folder / "python"
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
    return program


def run(
    folder: Path,
    data: Path,
    interpreter: Path,
    cell: str,
    setup: str,
    planted: dict[str, Any] | None = None,
    busy_cores: int = 0,
) -> Record:
    """The record of a job with this fault, as the workflow makes it."""
    ranks = SETUPS[setup].ranks
    environment = {"PYTHON_EXEC": str(interpreter), VARIABLE: json.dumps(planted or {})}
    spec = RunSpec(
        study=STUDY,
        device="cpu" if ranks == 1 else f"cpu-x{ranks}",
        kind="cpu",
        count=ranks,
        launcher="single" if ranks == 1 else "torchrun",
        software=Software(python=str(interpreter), environment=environment),
        cell=f"run={cell}",
        levels={"run": cell},
        repeat=1,
        seed=42,
        dataset="generated",
        settings=settings_of(setup),
        protocol=PROTOCOL,
    )
    out = folder / "runs" / STUDY / spec.device / spec.cell / "rep1"
    file = folder / f"{cell}.json"
    write_json(file, msgspec.to_builtins(spec))
    path = os.pathsep.join([str(ROOT), str(ROOT / "workflow")])
    command = [sys.executable, "-m", "feedrate", "train", "--spec", str(file), "--quiet"]
    command += ["--data", str(data / MANIFEST), "--out", str(out)]
    command += ["--try", "1"]  # the last one, so that it records a fault of the machine too
    core = max(os.sched_getaffinity(0))
    spin = ["taskset", "-c", str(core), sys.executable, "-c", "while True: pass"]
    neighbours = [subprocess.Popen(spin) for _ in range(busy_cores)]
    try:
        subprocess.run(
            command,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": path},
            check=False,
            capture_output=True,
        )
    finally:
        for neighbour in neighbours:
            neighbour.kill()
            neighbour.wait()
    return build_record(out, DEVICE)


def answers_of(records: Sequence[Record]) -> dict[str, str]:
    """What cells.csv says of each run: disturbed, its limit, or its status."""
    names = [*SETUPS, *FAULTS]
    study = Study(
        title="Planted faults",
        question="Are they named?",
        source=Source(title="none"),
        settings=settings_of("serial"),
        protocol=StudyProtocol(steps=PROTOCOL.steps, warmup_steps=PROTOCOL.warmup_steps),
        factors={"run": Factor(levels=list(names))},
        baseline={"run": names[0]},
    )
    devices = dict.fromkeys(("cpu", "cpu-x2"), DEVICE)
    config = WorkflowConfig(studies=[STUDY], devices=[*devices], dataset="none", datasets={})
    project = Project(config=config, devices=devices, studies={STUDY: study}, published={})
    plan, answers = StudyPlan(project=project, runs=[]), {}
    for row in cell_rows(run_table(records, plan), plan):
        answer = row["limit"] if row["status"] in ("ok", "out_of_memory") else row["status"]
        disturbed = row["noisy"] or row["disturbed"] or row["status"] == "invalid"
        answers[row["run"]] = "disturbed" if disturbed else str(answer)
    return answers
