"""Runs of the laboratory: the product's own jobs, with faults planted in them or beside them."""

import json
import os
import subprocess
import time
from pathlib import Path
from statistics import median
from typing import Any

import msgspec

from benchmarks.default_study import ROOT, prepare_default
from benchmarks.lab.faults import Case, Fault, Laboratory
from benchmarks.lab.neighbour import Neighbour
from benchmarks.lab.plant import PLANTS, VARIABLE, Planted
from benchmarks.loading import make_store
from feedrate.config.settings import Settings
from feedrate.config.spec import Protocol, RunSpec, Software
from feedrate.config.values import convert
from feedrate.core import paths, variables
from feedrate.core.files import write_json
from feedrate.data.manifest import MANIFEST, STORE_INDEX, store_folder
from feedrate.jobs.event_tail import EventTail
from feedrate.jobs.events import Step, Window
from feedrate.results.assemble import current_record
from feedrate.results.conformity import DISTURBED, MOST_ATTEMPTS
from feedrate.results.params import DeviceFacts
from feedrate.results.record import Record

STUDY, FACTOR = "lab", "run"
DEVICES = {1: "cpu", 2: "cpu-x2"}
PROTOCOL = Protocol(steps=24, warmup_steps=4, ceiling_s=3.0)
COMMON: dict[str, dict[str, Any]] = {
    "model": {"name": "bridgetower", "size": "tiny"},
    "train": {"precision": "fp32"},
}
PATH = os.pathsep.join([str(ROOT), str(ROOT / "workflow")])
"""PYTHONPATH of the jobs."""
LOOK_S = 0.01
"""How often a run's events are looked at, s."""
ASIDE = "disturbed"
"""Name of a folder with a run that was made again."""
LIMIT_MIN = 2
"""A run that takes longer fails, min."""
FIRST = 2
"""Further clean runs of a setup, before all others, that define a clean step and its memory."""


class CleanStep(msgspec.Struct):
    """A setup without faults: its step, s, and its peak memory, GiB."""

    step_s: float
    peak_gib: float


class Bench:
    """Where runs take place: data, an interpreter that plants faults, and a folder for them."""

    def __init__(self, lab: Laboratory, folder: Path, python: str) -> None:
        """`python` runs the jobs; see tests/warm."""
        self.lab, self._python, self.folder = lab, python, folder.resolve()
        self._planter = planter(self.folder, python)
        self.data = self._prepare()
        self._clean: dict[str, CleanStep] = {}

    def calibrate(self) -> None:
        """Run the first runs of each setup, and note a clean step's time and memory.

        Raises RuntimeError if they fail.
        """
        for setup in self.lab.setups:
            cases = [Case(setup, number=-number) for number in range(1, FIRST + 1)]
            records = [self.run(case) for case in cases]
            measured = [found for record in records if (found := record.measurement)]
            if not measured:
                raise RuntimeError(f"no clean run of {setup} succeeded: {records[0].cause}")
            self._clean[setup] = CleanStep(
                median(one.step_time_median_s or 0.0 for one in measured),
                median(one.peak_memory_gib or 0.0 for one in measured),
            )

    def run_folder(self, case: Case) -> Path:
        """The folder of a run."""
        spec = self.spec(case)
        return self.folder / paths.run_dir(STUDY, spec.device, spec.cell, 1)

    def run(self, case: Case) -> Record:
        """The record of a run, as the workflow makes it. A finished run is not repeated.

        A run that is disturbed although no foreign process was planted has a fault that nobody
        planted: it is set aside as `disturbed-N` and made again, at most MOST_ATTEMPTS times.
        """
        folder = self.run_folder(case)
        while True:
            if not (folder / paths.OUTCOME_NAME).is_file():
                self._start(case, folder)
            record = current_record(folder, DeviceFacts())[0]
            failed = {check.name for check in record.checks if not check.passed}
            disturbed = record.disturbances or failed & DISTURBED
            again = self.attempts(case) < MOST_ATTEMPTS
            if not (disturbed and again) or beside(self.lab, case):
                return record
            folder.rename(folder.with_name(f"{ASIDE}-{self.attempts(case)}"))

    def attempts(self, case: Case) -> int:
        """How often a case has been run."""
        return 1 + len(list(self.run_folder(case).parent.glob(f"{ASIDE}-*")))

    def _start(self, case: Case, folder: Path) -> None:
        """Run a case's job, and what is planted beside it, to its end."""
        spec = self.spec(case)
        file = folder.with_suffix(".json")
        write_json(file, msgspec.to_builtins(spec))
        # In its last try, a job records a fault of the machine too.
        environment = {variables.QUIET: "1", variables.RETRIES: "0", "PYTHONPATH": PATH}
        limits = {STUDY: dict.fromkeys(DEVICES.values(), LIMIT_MIN)}
        environment[variables.TIMEOUTS] = json.dumps(limits)
        words = ["--spec", file, "--data", self.data / MANIFEST, "--out", folder, "--try", "1"]
        job = subprocess.Popen(
            [self._python, "-m", "feedrate", "train", *map(str, words)],
            env={**os.environ, **environment},
            cwd=ROOT,
        )
        watch(job, folder, beside(self.lab, case), spec.protocol.warmup_steps)

    def planted(self, case: Case) -> list[Planted]:
        """What is planted in the job's processes."""
        if case.fault is None:
            return []
        batch, clean = self._settings(case).train.batch_size, self._clean[case.setup]
        parts = [part for part in self.lab.parts(case.fault) if part.kind in PLANTS]
        return [amount(part, case.grade / 100, clean, batch) for part in parts]

    def _settings(self, case: Case) -> Settings:
        own = case.fault.settings if case.fault else {}
        given = self.lab.setups[case.setup].settings
        parts = {*COMMON, *given, *own}
        merged = {p: COMMON.get(p, {}) | given.get(p, {}) | own.get(p, {}) for p in parts}
        return convert(merged, Settings, f"faults.yaml: {case.setup}")

    def spec(self, case: Case) -> RunSpec:
        """The spec of a run; it names what is planted."""
        count = self.lab.setups[case.setup].count
        text = msgspec.json.encode(self.planted(case)).decode()
        software = Software(
            python=str(self._planter),
            # torchrun starts the ranks with this interpreter too.
            environment={"PYTHON_EXEC": str(self._planter), VARIABLE: text},
        )
        return RunSpec(
            study=STUDY,
            device=DEVICES[count],
            kind="cpu",
            count=count,
            launcher="torchrun" if count > 1 else "single",
            software=software,
            cell=f"{FACTOR}={case.name}",
            levels={FACTOR: case.name},
            repeat=1,
            seed=42,
            dataset="generated",
            settings=self._settings(case),
            protocol=PROTOCOL,
        )

    def _prepare(self) -> Path:
        """The default study's pictures, and the stores of all setups."""
        prepared = self.folder / "prepared"
        if not prepared.is_dir():
            prepare_default(self.folder)
        for name in self.lab.setups:
            settings = self._settings(Case(name))
            store = store_folder(settings, prepared)
            if store and not (store / STORE_INDEX).is_file():
                make_store(store / STORE_INDEX, prepared, self.folder, settings)
        return prepared


def amount(fault: Fault, share: float, clean: CleanStep, batch: int) -> Planted:
    """What is planted where a grade is `share` and a rank's step has `batch` samples."""
    epoch_steps = max(1, round(share * (PROTOCOL.steps - PROTOCOL.warmup_steps)))
    return Planted(
        kind=fault.kind,
        how=fault.how,
        seconds=share * clean.step_s if fault.how in ("sleep", "spin") else 0.0,
        rank=fault.rank,
        batch=batch,
        rows=epoch_steps * batch if fault.how == "restart" else 0,
        cap_gib=clean.peak_gib / share if fault.how == "cap" else 0.0,
    )


def planter(folder: Path, python: str) -> Path:
    """An interpreter that starts plant.py in place of the worker of a training job."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "planter"
    file.write_text(
        "#!/bin/sh\n"
        'case "$*" in\n'
        '  "-m feedrate worker "*) shift 3;;\n'
        '  "-u -m feedrate worker "*) shift 4;;\n'
        f'  *) exec {python} "$@";;\n'
        "esac\n"
        f'exec {python} -u -m benchmarks.lab.plant "$@"\n',
        encoding="utf-8",
    )
    file.chmod(0o755)
    return file


def beside(lab: Laboratory, case: Case) -> tuple[Fault, float] | None:
    """The fault of a run that is a foreign process, and the share of the time it is busy."""
    parts = lab.parts(case.fault) if case.fault else []
    found = next((part for part in parts if part.how == "process"), None)
    return (found, case.grade / 100) if found else None


def watch(job: Any, folder: Path, foreign: tuple[Fault, float] | None, warmup_steps: int) -> None:
    """Wait for a job, and run foreign processes beside it if its fault is one."""
    if foreign is None:
        job.wait()
        return
    fault, share = foreign
    neighbour = Neighbour(fault.cores, share, fault.period_s)
    try:
        if fault.during == "job":
            neighbour.begin()
            job.wait()
        else:
            follow(job, folder, neighbour, warmup_steps)
    finally:
        neighbour.end()


def follow(job: Any, folder: Path, neighbour: Neighbour, warmup_steps: int) -> None:
    """Run a neighbour from a job's last warm-up step to the end of its window."""
    tail = None
    while job.poll() is None:
        time.sleep(LOOK_S)
        file = None if tail else next(folder.rglob(paths.EVENTS_NAME), None)
        tail = EventTail(file) if file else tail
        for event in tail.read() if tail else ():
            if isinstance(event, Step) and event.step == warmup_steps:
                neighbour.begin()
            if isinstance(event, Window):
                neighbour.end()
