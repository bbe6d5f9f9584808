"""The command `selftest` and its job: what works on this machine, part by part, in a given time.

The job runs each part of config/selftest.yaml as the workflow runs a study, measures the device's
physics (jobs/probe.py), and judges both.
"""

import argparse
import platform
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from operator import attrgetter
from pathlib import Path
from typing import Any, Literal

import msgspec

from feedrate.cli.snakemake import add_choices, check_call, load_project, run_snakemake
from feedrate.config.devices import Device, variant
from feedrate.config.errors import raise_all
from feedrate.config.plan import make_plan
from feedrate.config.project import Project, check_study
from feedrate.config.spec import RunSpec
from feedrate.config.study import Study, Thresholds
from feedrate.config.values import duration_text, load, rate_text
from feedrate.config.workflow import Generated, WorkflowConfig
from feedrate.core import paths
from feedrate.core.errors import ExpectedError, LogError, tell
from feedrate.core.files import write_json, write_text
from feedrate.data.manifest import STORE_INDEX, store_folder, store_spec
from feedrate.devices.base import DeviceError
from feedrate.devices.doctor import FAILS, examine
from feedrate.devices.launch import run_ranks
from feedrate.flow.data import job
from feedrate.jobs.probe import ANSWER, Probe, Product
from feedrate.results.assemble import build_record
from feedrate.results.conformity import DISTURBED
from feedrate.results.limits import limit_of
from feedrate.results.record import Record

NAME = paths.SELFTEST_TARGET
PART_S, LEAST_S = 180.0, 10.0
"""The longest time of a part, s, and the shortest in which one is still begun."""
LIMITS = {"slow-loader": "data loading", "slow-model": "computing"}
LEAST_OF_PEAK, MOST_OF_PEAK = 0.2, 1.2
"""Shares of its peak that a large matrix product on a working device lies between: libraries reach
0.6 to 0.95. A rate without a wait is far higher. From the peak on it proves nothing: an RTX 5090
exceeds its data sheet's clock by 15%."""
POWER_SHARE = 0.05  # NVML's figures are accurate within 5% (nvmlDeviceGetPowerUsage)
MOST_LEVELS_OFF = 10.0
"""Levels of 255 by which pixels may differ from the reference's on average. Decoders that shrink or
crop first differ by up to 4.5, another picture by 46."""

Outcome = Literal["failed", "unknown", "passed", "not claimed"]
ORDER: tuple[Outcome, ...] = ("failed", "unknown", "passed", "not claimed")
"""The outcomes in the order of the page."""


class Line(msgspec.Struct, frozen=True):
    """One line of the page: the outcome of a subject, such as `one card: fp8`, in a sentence."""

    outcome: Outcome
    subject: str
    text: str


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of this command."""
    add_choices(parser)
    text = "stop after these minutes; default: selftest_minutes of config.yaml"
    parser.add_argument("--minutes", type=float, metavar="N", help=text)
    text = "only this part of config/selftest.yaml; repeatable"
    parser.add_argument("--part", action="append", metavar="NAME", help=text)


def selftest(options: argparse.Namespace, words: Sequence[str]) -> int:
    """Test the chosen devices and print their pages; 1 if something failed."""
    if options.minutes is not None:
        options.config.append(f"selftest_minutes={options.minutes}")
    if options.part:
        options.config.append(f"selftest_parts=[{', '.join(options.part)}]")
    check_call(options, words)
    started_s = time.time()
    devices = load_project(options).config.devices
    rules = [paths.rule_of(paths.SELFTEST_RULE, device) for device in devices]
    code = run_snakemake(options, NAME, "--forcerun", *rules, *words)
    for device in devices:
        page = Path(paths.SELFTEST.format(device=device)).with_suffix(".txt")
        if page.is_file() and page.stat().st_mtime >= started_s:
            text = page.read_text(encoding="utf-8").rstrip()
            print(f"\n{text}")
            code = code or int(re.search("^failed", text, re.MULTILINE) is not None)
    return code


def selftest_device(
    device: str,
    entry: Device,
    parts: Path,
    data: Path,
    out: Path,
    minutes: float,
    only: list[str] | None = None,
) -> None:
    """Test one device on this machine, all parts or `only` these. Next to `out`, which has all
    lines at the end, are the runs and the page selftest.txt, written again as each part ends.
    Raises DeviceError if every part is bound to fail."""
    start_s = time.monotonic()
    runs = out.parent / "runs"
    shutil.rmtree(runs, ignore_errors=True)
    out.unlink(missing_ok=True)
    project = plan_project(device, entry, parts)
    plan = make_plan(project)
    all_parts = project.studies[NAME].factors["part"].levels
    chosen_parts = only or all_parts
    specs = [s for s in plan.runs.values() if is_shown(s) and s.levels["part"] in chosen_parts]
    specs.sort(key=lambda spec: all_parts.index(spec.levels["part"]))
    findings = examine(project, [spec for spec in specs if spec.device == device])
    if faults := [str(f) for f in findings if f.outlook == FAILS and not f.studies]:
        raise DeviceError("nothing was started: " + "; ".join(faults))
    late = f"not run within {minutes:g} minutes"
    lines = {subject(spec): Line("unknown", subject(spec), late) for spec in specs}
    planned_parts = {spec.levels["part"] for spec in specs}
    for cell in plan.unsupported:
        part = str(cell.levels["part"])
        if part in chosen_parts and part not in planned_parts:
            lines[part] = Line(
                "not claimed", part, f"config/devices.yaml does not claim {cell.lacks}"
            )
    if entry.count == 1:
        lines["all cards"] = Line("not claimed", "all cards", "the entry has one card")
    tests = [part_lines(spec, entry, data, runs, start_s + 60 * minutes) for spec in specs]
    if specs and not only:
        tests.insert(0, physics(max(specs, key=attrgetter("count")), entry, runs))
    for line in chain.from_iterable(tests):
        tell("feedrate selftest", f"{line.outcome}: {line.subject}: {line.text}")
        lines[line.subject] = line
        write_page(out, device, lines.values(), time.monotonic() - start_s)
    write_page(out, device, lines.values(), time.monotonic() - start_s)
    write_json(out, {"device": device, "lines": msgspec.to_builtins([*lines.values()])})


def write_page(out: Path, device: str, lines: Iterable[Line], took_s: float) -> None:
    """Write the page next to `out`: what failed first."""
    ordered = sorted(lines, key=lambda line: ORDER.index(line.outcome))
    counts = Counter(line.outcome for line in ordered)
    page = [
        f"Self-test of {device} on {platform.node()}, {duration_text(took_s)}",
        ", ".join(f"{number} {name}" for name, number in counts.items()) + "\n",
        *(f"{line.outcome:<12}{line.subject}: {line.text}" for line in ordered),
    ]
    write_text(out.with_suffix(".txt"), "\n".join(page) + "\n")


def plan_project(device: str, entry: Device, parts: Path) -> Project:
    """A project of the self-test alone: the device and, if it has several cards, one of them."""
    devices = {device: entry}
    if entry.count > 1:
        devices |= [variant(device, devices, 1)]
    study = load(parts, Study, str(parts))
    raise_all(check_study(str(parts), study, devices, []))
    config = WorkflowConfig(
        studies=[NAME], devices=[*devices], dataset="drawn", datasets={"drawn": Generated()}
    )
    return Project(config=config, devices=devices, studies={NAME: study}, published={NAME: []})


def is_shown(spec: RunSpec) -> bool:
    """Whether a run's number of cards is that of its level of `cards`."""
    return spec.levels["cards"] == ("one" if spec.count == 1 else "all")


def subject(spec: RunSpec) -> str:
    """The subject of a part's first line."""
    return f"{'one card' if spec.count == 1 else 'all cards'}: {spec.levels['part']}"


def physics(spec: RunSpec, entry: Device, runs: Path) -> Iterator[Line]:
    """The lines of the device's physics, of all cards at the same time."""
    folder = runs / "probe"
    peaks = {peak.precision: peak.datasheet_tflops for peak in entry.peaks}
    try:
        run_ranks(spec, "probe", folder, ["--precisions", *(peaks or ["fp32"])], "physics", PART_S)
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
    spec: RunSpec, entry: Device, data: Path, runs: Path, end_s: float
) -> Iterator[Line]:
    """The lines of one part; none if the time is over."""
    name = subject(spec)
    remaining_s = end_s - time.monotonic()
    if remaining_s < LEAST_S:
        return
    try:
        record = run_part(spec, entry, data, runs, min(remaining_s, PART_S))
    except LogError as error:
        yield Line("failed", name, f"{error}")
        return
    if remaining_s < PART_S and "stopped after" in record.cause:
        yield Line("unknown", name, f"stopped after {remaining_s:.0f} s: the time was over")
        return
    yield judge_run(record, name)
    if record.measurement is None:
        return
    part = str(spec.levels["part"])
    if part == "baseline" or part.startswith("decode"):
        yield judge_pixels(record, name)
    if part in LIMITS:
        yield judge_limit(record, LIMITS[part], entry.memory_gib, name)


def run_part(spec: RunSpec, entry: Device, data: Path, runs: Path, limit_s: float) -> Record:
    """The record of a job, run as in the workflow. Raises LogError if there is none."""
    folder = runs / spec.device / spec.cell
    # A last try records a fault of the machine too.
    options: dict[str, Any] = {"try": sys.maxsize, "timeout_min": limit_s / 60}
    jobs = []
    if store := store_folder(spec.settings, data.parent):
        options["store"] = index = store / STORE_INDEX
        if not index.is_file():
            settings = store_spec(spec.settings)
            jobs.append(job("store_dataset", settings=settings, data=data, out=index))
    jobs.append(job("train", spec=spec, data=data, out=folder, **options) + " --quiet")
    for command in jobs:
        subprocess.run([sys.executable, "-m", "feedrate", *shlex.split(command)], check=False)
    return build_record(folder, entry)


# The judgements rest on what any device must do, not on past figures of a device.


def judge_product(product: Product, peak_tflops: float | None, card: str) -> Line:
    """A large matrix product reaches 20% to 100% of the registered peak."""
    subject = f"{card}: matrix product in {product.precision}"
    if product.tflops is None:
        text = product.failure or "only the Trainer of this kind of device computes it"
        return Line("failed" if product.failure else "unknown", subject, text)
    text = f"{product.tflops:.4g} TFLOP/s, side {product.side}"
    if peak_tflops is None:
        return Line("unknown", subject, f"{text}; config/devices.yaml has no peak")
    share = product.tflops / peak_tflops
    text += f", {100 * share:.3g}% of the peak {peak_tflops:g}"
    if share <= 1:
        return Line(_if(share >= LEAST_OF_PEAK), subject, text)
    text += ": synchronisation does not wait, or config/devices.yaml describes another device"
    if share > MOST_OF_PEAK:
        return Line("failed", subject, text)
    return Line("unknown", subject, f"{text}, or the clock exceeds the data sheet")


def judge_energy(answers: Sequence[Probe], power_w: float | None) -> Line:
    """Every energy counter increases (on CPUs the first rank's, which counts for all), and the mean
    power stays below the rating."""
    ranks = [answer.energy for answer in answers]
    if any(joules is None for readings in ranks for _, joules in readings):
        return Line("unknown", "energy", "it cannot be read here")
    if not any(joules for readings in ranks[1:] for _, joules in readings):
        ranks = ranks[:1]
    highest_w = 0.0
    for card, readings in enumerate(ranks):
        joules = [reading_j or 0.0 for _, reading_j in readings]
        if joules != sorted(joules):
            return Line("failed", "energy", f"the counter of card {card} decreased")
        if joules[-1] == joules[0]:
            return Line("failed", "energy", f"the counter of card {card} did not increase")
        duration_s = readings[-1][0] - readings[0][0]
        highest_w = max(highest_w, (joules[-1] - joules[0]) / duration_s)
    text = f"the counters increase; {highest_w:.4g} W on average under matrix products"
    if power_w is None:
        return Line("unknown", "energy", f"{text}; config/devices.yaml has no power_w")
    passed = highest_w <= (1 + POWER_SHARE) * power_w
    return Line(_if(passed), "energy", f"{text}, rated for {power_w:g} W")


def judge_run(record: Record, subject: str) -> Line:
    """A claimed capability's job ends well, as asked for, whatever disturbs its speed."""
    failed = [c for c in record.checks if not c.passed and c.name not in DISTURBED]
    if record.measurement is None or record.status not in ("ok", "invalid") or failed:
        cause = failed[0].detail if failed else record.cause
        return Line("failed", subject, f"{record.status}: {cause}")
    rate = rate_text(record.measurement.samples_per_s)
    return Line("passed", subject, f"{rate} samples/s, {len(record.checks)} checks passed")


def judge_pixels(record: Record, subject: str) -> Line:
    """The pixels of a decode path match those of the reference on the host."""
    difference = record.pixels.mean_abs_diff
    if difference is None:
        return Line("failed", f"{subject}: pixels", "they were not compared with decode: reference")
    text = f"{difference:.3g} of 255 off on average, from decode: reference"
    return Line(_if(difference <= MOST_LEVELS_OFF), f"{subject}: pixels", text)


def judge_limit(record: Record, expected: str, memory_gib: float | None, subject: str) -> Line:
    """A planted limit is found: data loading with a slow loader, computing with a slow model."""
    if record.measurement is None or record.spec is None:
        return Line("failed", f"{subject}: limit", "there is no measurement")
    spec, loader = record.spec, record.spec.settings.loader
    cell = msgspec.structs.asdict(record.measurement) | msgspec.structs.asdict(record.ceilings)
    cell |= {"status": "ok", "task": "training", "device_kind": spec.kind, "world_size": spec.count}
    cell |= {"loader_workers": loader.workers, "decodes_on_device": loader.decode == "device"}
    cell["device_busy_share"] = None  # a slow model may have small kernels
    name, low, high = limit_of(cell, Thresholds(), memory_gib)
    text: str = name or "not known"
    if name != expected:
        text += f", not {expected}"
    text += f": a faster loader would gain {low or 0.0:.0%} to {high or 0.0:.0%}"
    return Line(_if(name == expected), f"{subject}: limit", text)


def _if(passed: bool) -> Outcome:
    return "passed" if passed else "failed"
