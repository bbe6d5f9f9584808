"""The command `selftest` and its job: what works on this machine, part by part, in ten minutes.

The job plans config/selftest.yaml for a device, brings each run to its record as the workflow does,
measures the device's physics (jobs/probe.py), and judges both (results/selftest.py).
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
from pathlib import Path

import msgspec

from feedrate.cli.ranks import run_ranks
from feedrate.cli.run import measure_again
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
from feedrate.data.manifest import STORE_INDEX, store_folder, store_spec
from feedrate.devices.base import DeviceError
from feedrate.devices.doctor import FAILS, examine
from feedrate.jobs.probe import ANSWER, Probe
from feedrate.results.assemble import current_record
from feedrate.results.params import DeviceFacts
from feedrate.results.record import Record
from feedrate.results.selftest import (
    Line,
    judge_energy,
    judge_pixels,
    judge_product,
    judge_run,
    judge_verdict,
)

NAME = "selftest"
LIMIT_S = 570.0
"""Time for all parts, s; what has not begun by then is unknown."""
PART_S, LEAST_S = 180.0, 20.0
"""The longest time of a part, s, and the shortest in which one is still begun."""
VERDICTS = {"slow-loader": "input-bound", "slow-model": "compute-bound"}
ORDER = ("failed", "unknown", "passed", "not claimed")
"""The outcomes in the order of the page."""


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
    --out      the page; selftest.json and the runs are written next to it
    """
    start_s, runs = time.monotonic(), out.parent / "runs"
    shutil.rmtree(runs, ignore_errors=True)
    project = plan_project(device, entry, parts, data.parent.parent.name)
    plan = make_plan(project)
    specs = sorted(filter(is_shown, plan.runs.values()), key=lambda spec: spec.count)
    found = examine(project, [spec for spec in specs if spec.device == device])
    if bound := [f"{one}" for one in found if one.outlook == FAILS and not one.studies]:
        raise DeviceError("nothing was started: " + "; ".join(bound))
    lines = []

    def add(several: Iterator[Line]) -> None:
        for line in several:
            tell("feedrate selftest", f"{line.outcome}: {line.subject}: {line.text}")
            lines.append(line)

    add(physics(specs[-1], entry, runs))
    for spec in specs:
        add(part_lines(spec, entry, data, runs, start_s + LIMIT_S - time.monotonic()))
    lacking = {str(cell.levels["part"]): cell.lacks for cell in plan.unsupported}
    for part in lacking.keys() - {spec.levels["part"] for spec in specs}:
        lines.append(Line("not claimed", part, f"the registry does not claim {lacking[part]}"))
    if entry.count == 1:
        lines.append(Line("not claimed", "all cards", "the entry has one card"))
    minutes = (time.monotonic() - start_s) / 60
    head = f"Self-test of {device} on {platform.node()}, {minutes:.1f} minutes"
    outcomes = [line.outcome for line in lines]
    counts = ", ".join(f"{outcomes.count(name)} {name}" for name in ORDER if name in outcomes)
    rows = [
        f"{line.outcome:<12}{line.subject}: {line.text}"
        for line in sorted(lines, key=lambda line: ORDER.index(line.outcome))
    ]
    write_json(out.with_suffix(".json"), {"device": device, "lines": msgspec.to_builtins(lines)})
    write_text(out, "\n".join([head, counts, "", *rows, ""]))


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


def is_shown(spec: RunSpec) -> bool:
    """Whether a run's number of cards is that of its level of `cards`."""
    return spec.levels["cards"] == ("one" if spec.count == 1 else "all")


def physics(spec: RunSpec, entry: Device, runs: Path) -> Iterator[Line]:
    """The lines of the device's physics, of all cards at the same time."""
    folder = runs / "probe"
    peaks = {peak.precision: peak.datasheet_tflops for peak in entry.peaks}
    options = ["--precisions", *(peaks or ["fp32"])]
    try:
        run_ranks(spec, "probe", folder, options, "physics", PART_S)
    except ExpectedError as error:
        yield Line("failed", "physics", f"{error}")
        return
    files = [folder / ANSWER.format(rank) for rank in range(spec.count)]
    answers = [msgspec.json.decode(file.read_bytes(), type=Probe) for file in files]
    for answer in answers:
        for product in answer.products:
            yield judge_product(product, peaks.get(product.precision), f"card {answer.rank}")
    yield judge_energy(answers, entry.power_w)


def part_lines(
    spec: RunSpec, entry: Device, data: Path, runs: Path, left_s: float
) -> Iterator[Line]:
    """The lines of one part."""
    part = str(spec.levels["part"])
    subject = f"{'one card' if spec.count == 1 else 'all cards'}: {part}"
    if left_s < LEAST_S:
        yield Line("unknown", subject, f"not run: the {LIMIT_S / 60:.0f} minutes are over")
        return
    record = run_part(spec, entry, data, runs, min(left_s, PART_S))
    yield judge_run(record, subject)
    if record.measurement is None:
        return
    if part == "baseline" or part.startswith("decode"):
        yield judge_pixels(record, subject)
    if part in VERDICTS:
        yield judge_verdict(record, VERDICTS[part], entry.memory_gib, subject)


def run_part(spec: RunSpec, entry: Device, data: Path, runs: Path, limit_s: float) -> Record:
    """The record of a job, run as in the workflow."""
    folder = runs / paths.run_dir(NAME, spec.device, spec.cell, 1)
    file = folder.with_suffix(".json")
    write_json(file, msgspec.to_builtins(spec))
    needed, store = store_spec(spec.settings), store_folder(spec.settings, data.parent)
    if needed and store and not (index := store / STORE_INDEX).is_file():
        settings = msgspec.json.encode(needed).decode()
        run_job("store-dataset", data=data, settings=settings, out=index)
    limits = json.dumps({NAME: {spec.device: limit_s / 60}})
    # In its last try, a job records a fault of the machine too.
    environment = {variables.TIMEOUTS: limits, variables.QUIET: "1", variables.RETRIES: "0"}
    run_job("train", environment, spec=file, data=data, out=folder, **{"try": 1})
    return current_record(folder, subset(DeviceFacts, entry))[0]


def run_job(job: str, environment: dict[str, str] | None = None, **options: object) -> None:
    """Run a job of feedrate with these options to its end."""
    words = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    command = [sys.executable, "-m", "feedrate", job, *words]
    subprocess.run(command, env={**os.environ, **(environment or {})}, check=False)
