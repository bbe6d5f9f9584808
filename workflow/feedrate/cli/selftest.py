"""The command `selftest` and its job: what works on this machine, part by part, in ten minutes.

The job plans config/selftest.yaml for a device, brings each run to its record as the workflow does,
measures the device's physics (jobs/probe.py), and judges both (results/selftest.py). It writes a
page, its figures as JSON, and an archive without secrets for a bug report.
"""

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile

import msgspec
from msgspec.structs import replace

from feedrate.cli.run import measure_again
from feedrate.cli.tune import run_ranks
from feedrate.config.devices import Device, variant
from feedrate.config.errors import raise_all
from feedrate.config.plan import make_plan
from feedrate.config.project import Project, check_study
from feedrate.config.spec import RunSpec
from feedrate.config.study import Study
from feedrate.config.values import load, subset
from feedrate.config.workflow import Generated, WorkflowConfig
from feedrate.core import paths, variables
from feedrate.core.errors import ExpectedError, tell
from feedrate.core.files import write_json, write_text
from feedrate.core.scrub import scrub
from feedrate.data.manifest import STORE_INDEX, store_folder, store_spec
from feedrate.devices import launch
from feedrate.devices.base import DeviceError
from feedrate.devices.doctor import FAILS, Finding, examine
from feedrate.devices.host import host_facts
from feedrate.jobs.event_tail import EventTail
from feedrate.jobs.events import Step, Window
from feedrate.jobs.probe import ANSWER, Probe
from feedrate.results.assemble import current_record
from feedrate.results.params import DeviceFacts
from feedrate.results.record import Record
from feedrate.results.selftest import (
    Line,
    Outcome,
    judge_energy,
    judge_pixels,
    judge_probe,
    judge_run,
    judge_stopwatch,
    judge_verdict,
    judge_weights,
)

NAME = "selftest"
LIMIT_S = 570.0
"""Time for all parts, s; what has not begun by then is unknown."""
PART_S, LEAST_S = 180.0, 20.0
"""The longest time of a part, s, and the shortest in which one is still begun."""
STOPWATCH_S, LOOK_S = 4.0, 0.005
"""Length of the window that is compared with a stopwatch, and how often the stopwatch looks, s."""
VERDICTS = {"slow-loader": "input-bound", "slow-model": "compute-bound"}
KEPT = (".json", ".jsonl", ".log")
"""Files of the runs that go into the archive, by the ends of their names."""


def selftest(options: argparse.Namespace, others: Sequence[str]) -> int:
    """Test the chosen devices and print their pages; 1 if something failed."""
    code, pages = measure_again(options, others, NAME, paths.SELFTEST)
    for file in pages:
        print(f"\n{file.read_text(encoding='utf-8').rstrip()}")
        lines = json.loads(file.with_suffix(".json").read_text(encoding="utf-8"))["lines"]
        code = code or int(any(line["outcome"] == "failed" for line in lines))
    return code


def selftest_device(device: str, entry: Device, parts: Path, data: Path, out: Path) -> None:
    """Test one device on this machine. Raises DeviceError if every part is bound to fail.

    --device   its name in the registry
    --entry    its registry entry
    --parts    config/selftest.yaml
    --data     prepared/manifest.json
    --out      the page; selftest.json, selftest.zip and the runs are written next to it
    """
    started, start_s = datetime.now(UTC), time.monotonic()
    shutil.rmtree(out.parent / "runs", ignore_errors=True)
    project = plan_project(device, entry, parts, data.parent.parent.name)
    test = SelfTest(project, device, data, out.parent / "runs", start_s + LIMIT_S)
    found = examine(project, [spec for spec in test.specs if spec.device == device])
    if bound := [f"{one}" for one in found if one.outlook == FAILS and not one.studies]:
        raise DeviceError("nothing was started: " + "; ".join(bound))
    lines = []
    for line in test.lines():
        tell("feedrate selftest", f"{line.outcome}: {line.subject}: {line.text}")
        lines.append(line)
    minutes = (time.monotonic() - start_s) / 60
    figures = {
        **{"device": device, "entry": entry, "lines": lines, "probes": test.probes},
        **{"started_at": started.isoformat(timespec="seconds"), "minutes": round(minutes, 1)},
        **{"machine": host_facts(), "environment": launch.recorded_environment()},
        "doctor": found,
    }
    head = f"{device} on {platform.node()}, {started:%Y-%m-%d %H:%M} UTC, {minutes:.1f} minutes"
    write_json(out.with_suffix(".json"), msgspec.to_builtins(figures))
    write_text(out, page(head, lines, found))
    write_archive(out)


def plan_project(device: str, entry: Device, parts: Path, dataset: str) -> Project:
    """A project of the self-test alone: the device and, if it has several cards, one of them."""
    devices = {device: entry}
    if entry.count > 1:
        devices |= [variant(device, devices, 1)]
    study = load(parts, Study, str(parts))
    raise_all(check_study(str(parts), study, devices, []))
    config = WorkflowConfig(
        studies=[NAME], devices=list(devices), dataset=dataset, datasets={dataset: Generated()}
    )
    return Project(config=config, devices=devices, studies={NAME: study}, published={NAME: []})


def page(head: str, lines: Sequence[Line], found: Sequence[Finding]) -> str:
    """The page: failures come first, the findings of doctor (`found`) last."""
    order: list[Outcome] = ["failed", "unknown", "passed", "not claimed"]
    counts = ", ".join(f"{[line.outcome for line in lines].count(one)} {one}" for one in order)
    rows = [
        f"{line.outcome:<12}{line.subject}: {line.text}"
        for line in sorted(lines, key=lambda line: order.index(line.outcome))
    ]
    doctor = [
        f"{one.outlook:<14}{one.subject}: {one.text}{f' ({one.remedy})' * bool(one.remedy)}"
        for one in found
    ]
    return "\n".join([f"Self-test of {head}", counts, "", *rows, "", "Doctor", *doctor, ""])


def write_archive(out: Path) -> None:
    """Pack the page, its figures and the logs of all runs without secrets; no weights."""
    folder = out.parent
    with ZipFile(out.with_suffix(".zip"), "w", ZIP_DEFLATED) as archive:
        for file in sorted(folder.rglob("*")):
            if file.suffix in KEPT or file == out:
                text = file.read_text(encoding="utf-8", errors="replace")
                archive.writestr(str(file.relative_to(folder)), scrub(text))


class SelfTest:
    """The self-test of one device."""

    def __init__(
        self, project: Project, device: str, data: Path, runs: Path, deadline_s: float
    ) -> None:
        """`runs` is the folder for the jobs; after `deadline_s` (monotonic) no part is begun."""
        self._entry = project.devices[device]
        self._facts = subset(DeviceFacts, self._entry)
        self._data, self._runs, self._deadline_s = data, runs, deadline_s
        self._plan = make_plan(project)
        self.specs = sorted(filter(is_shown, self._plan.runs.values()), key=lambda one: one.count)
        self._step_s = 0.0
        """Of the baseline on one card."""
        self.probes: list[Probe] = []

    def lines(self) -> Iterator[Line]:
        """All lines, in the order in which they become known."""
        yield from self._physics(self.specs[-1])
        for spec in self.specs:
            yield from self._part(spec)
        shown = {spec.levels["part"] for spec in self.specs}
        lacking = {cell.levels["part"]: cell.lacks for cell in self._plan.unsupported}
        for part in lacking.keys() - shown:
            yield Line("not claimed", str(part), f"the registry does not claim {lacking[part]}")
        if self._entry.count == 1:
            yield Line("not claimed", "all cards", "the entry has one card")

    def _physics(self, spec: RunSpec) -> Iterator[Line]:
        """The lines of the device's physics, of all cards at the same time."""
        folder, subject = self._runs / "probe", "physics"
        precisions = [peak.precision for peak in self._entry.peaks] or ["fp32"]
        try:
            run_ranks(spec, "probe", folder, ["--precisions", *precisions], subject, PART_S)
        except ExpectedError as error:
            yield Line("failed", subject, f"{error}")
            return
        files = [folder / ANSWER.format(rank) for rank in range(spec.count)]
        self.probes = [msgspec.json.decode(file.read_bytes(), type=Probe) for file in files]
        for answer in self.probes:
            yield from judge_probe(answer, self._entry.peaks)
        yield judge_energy(self.probes, self._entry.power_w)

    def _part(self, spec: RunSpec) -> Iterator[Line]:
        """The lines of one part."""
        part = str(spec.levels["part"])
        subject = f"{'one card' if spec.count == 1 else 'all cards'}: {part}"
        if (left_s := self._deadline_s - time.monotonic()) < LEAST_S:
            yield Line("unknown", subject, f"not run: the {LIMIT_S / 60:.0f} minutes are over")
            return
        record, stopwatch_s = self._run(long_enough(spec, self._step_s), min(left_s, PART_S))
        yield judge_run(record, subject)
        if record.measurement is None:
            return
        if part == "baseline":
            self._step_s = record.measurement.step_time_median_s
        if part == "stopwatch":
            yield judge_stopwatch(record.measurement, stopwatch_s, subject)
        if part == "baseline" or part.startswith("decode"):
            yield judge_pixels(record, subject)
        if part in VERDICTS:
            yield judge_verdict(record, VERDICTS[part], self._entry.memory_gib, subject)
        if spec.count > 1 and spec.settings.train.strategy != "fsdp":
            yield judge_weights(record, subject)

    def _run(self, spec: RunSpec, limit_s: float) -> tuple[Record, float | None]:
        """The record of a job, run as in the workflow, and its window by an outer stopwatch, s."""
        folder = self._runs / paths.run_dir(NAME, spec.device, spec.cell, 1)
        file = folder.with_suffix(".json")
        write_json(file, msgspec.to_builtins(spec))
        needed, store = store_spec(spec.settings), store_folder(spec.settings, self._data.parent)
        if needed and store and not (index := store / STORE_INDEX).is_file():
            asked = msgspec.json.encode(needed).decode()
            start("store-dataset", data=self._data, settings=asked, out=index).wait()
        limits = json.dumps({NAME: {spec.device: limit_s / 60}})
        # In its last try, a job records a fault of the machine too.
        environment = {variables.TIMEOUTS: limits, variables.QUIET: "1", variables.RETRIES: "0"}
        options = {"spec": file, "data": self._data, "out": folder, "try": 1}
        job = start("train", environment, **options)
        stopwatch_s = time_window(job, folder, spec.protocol.warmup_steps)
        return current_record(folder, self._facts)[0], stopwatch_s


def is_shown(spec: RunSpec) -> bool:
    """Whether a run's number of cards is that of its level of `cards`."""
    return spec.levels["cards"] == ("one" if spec.count == 1 else "all")


def long_enough(spec: RunSpec, step_s: float) -> RunSpec:
    """The part `stopwatch` with a window of `STOPWATCH_S`, if a step takes `step_s`, s."""
    if spec.levels["part"] != "stopwatch" or not step_s:
        return spec
    needed = spec.protocol.warmup_steps + round(STOPWATCH_S / step_s)
    return replace(spec, protocol=replace(spec.protocol, steps=max(spec.protocol.steps, needed)))


def start(job: str, environment: dict[str, str] | None = None, **options: object) -> Any:
    """Start a job of feedrate with these options."""
    words = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    command = [sys.executable, "-m", "feedrate", job, *words]
    return subprocess.Popen(command, env={**os.environ, **(environment or {})})


def time_window(job: Any, folder: Path, warmup_steps: int) -> float | None:
    """Wait for a training job, and time its window from outside, s: from the last warm-up step in
    rank 0's file to the window there. None if they were not seen."""
    tail, opened_s, closed_s = None, None, None
    while job.poll() is None:
        time.sleep(LOOK_S)
        file = None if tail else next(folder.glob(f"attempt-*/{paths.EVENTS_NAME}"), None)
        tail = EventTail(file) if file else tail
        for event in tail.read() if tail and not closed_s else ():
            if isinstance(event, Step) and event.step == warmup_steps:
                opened_s = time.monotonic()
            if isinstance(event, Window):
                closed_s = time.monotonic()
    return closed_s - opened_s if opened_s and closed_s else None
