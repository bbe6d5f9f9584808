"""The job `tune-device`: measure the loaders and the model on this machine, recommend a loader.

The workflow's target `tune` starts it for each device. It takes a run of the configuration, changes
only the loader, and trains it twice for a few seconds: to measure the model, and to check the
expectation for the recommended loader.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from statistics import fmean

import msgspec

from feedrate.cli import advice
from feedrate.cli.advice import Model, Run
from feedrate.config.spec import RunSpec
from feedrate.core.errors import ExpectedError, tell
from feedrate.core.files import write_json
from feedrate.core.paths import LOG_NAME, OUTCOME_NAME, SPEC_NAME
from feedrate.devices import launch
from feedrate.devices.host import host_lock, lock_name
from feedrate.jobs.drain import ANSWER, Drained, Loader, Refused
from feedrate.jobs.events import read_run_events

STEPS = 30
"""Timed steps of both training runs."""
SHARDED_WORKERS = 2
"""Loader workers for measuring a sharded model, so that loading and computing overlap."""
CEILING_S = 3.0
DRAIN_TIMEOUT_S = 1800


class TuningError(ExpectedError):
    """A measurement failed."""


def tune_device(spec: RunSpec, data: Path, out: Path) -> None:
    """Measure every loader and the model of `spec` on this machine. `data` is
    prepared/manifest.json, `out` advice.txt, next to tuning.json."""
    lines, numbers = tune(short(spec), data, out.parent)
    write_json(out.with_name("tuning.json"), numbers)
    advice.write_lines(lines, out)


def short(spec: RunSpec) -> RunSpec:
    """The spec with only the steps that a rate needs, and with fully decoded pixels."""
    protocol = msgspec.structs.replace(
        spec.protocol,
        steps=spec.protocol.warmup_steps + STEPS,
        ceiling_s=CEILING_S,
        evaluate=False,
        save_checkpoints=False,
    )
    made = msgspec.structs.replace(spec, protocol=protocol)
    return made.changed("loader", scaled_decode=False)


def tune(spec: RunSpec, manifest: Path, out: Path) -> tuple[list[str], dict[str, object]]:
    """Measure, choose, check in `out`: advice and numbers. Raises DeviceError or TuningError."""
    sharded = spec.settings.train.strategy == "fsdp"
    workers = SHARDED_WORKERS if sharded else 0
    first = spec.changed("loader", decode="host", workers=workers, oversubscribe=sharded)
    plain = train(first, manifest, out / "model")
    if plain.model is None:
        raise TuningError(f"no model-only throughput was measured; see {out / 'model' / LOG_NAME}")
    drained = drain(spec, manifest, out / "loaders")
    if not drained.loaders:
        raise TuningError(f"no loader could be measured: {drained.refused[0].why}")
    model = plain.model._replace(samples_per_s=plain.computes_per_s, cores=drained.cores)
    choice = advice.choose(drained.loaders, model)
    expected = advice.expected(choice, model)
    used = {"decode": choice.decode, "workers": choice.workers}
    check = train(spec.changed("loader", **used), manifest, out / "check")
    lines = [
        advice.model_line(spec.device, plain, model.samples_per_s, sharded=sharded),
        *advice.advice(drained.loaders, drained.refused, model, choice, check),
        advice.cores_line(spec.count, choice, model),
    ]
    return lines, {
        "model_samples_per_s": model.samples_per_s,
        "model_cpu_s_per_sample": model.cpu_s,
        "loading_cores_per_device": advice.cores_of_loading(spec.count, choice, model),
        **msgspec.to_builtins(drained),
        "use": used,
        "expected_samples_per_s": expected,
        "measured_samples_per_s": check.samples_per_s,
        "error": expected / check.samples_per_s - 1,
    }


def train(spec: RunSpec, manifest: Path, folder: Path) -> Run:
    """Run a training job in `folder`. Raises TuningError if it fails."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    file = folder.with_suffix(".json")
    write_json(file, msgspec.to_builtins(spec))
    command = [sys.executable, "-m", "feedrate", "train", "--spec", str(file), "--quiet"]
    command += ["--data", str(manifest), "--out", str(folder)]
    code = subprocess.run(command, check=False).returncode
    written = folder / OUTCOME_NAME
    outcome = json.loads(written.read_bytes()) if written.is_file() else {}
    if code or outcome.get("status") != "ok":
        cause = outcome.get("cause") or f"exit code {code}"
        raise TuningError(f"the run with decode: {spec.settings.loader.decode} failed: {cause}")
    return read_run(folder, sharded=spec.settings.train.strategy == "fsdp")


def read_run(folder: Path, *, sharded: bool = False) -> Run:
    """The throughput of a run, of its steps without waits, and of the model only. The wait is the
    longest of a rank's, because the others waited for it. Sharded ranks do not measure the model
    alone: their steps without the wait count. Raises TuningError if there are no timed steps."""
    ranks = read_run_events(folder).values()
    windows = [rank.window for rank in ranks if rank.window]
    samples = sum(window.samples for window in windows)
    wall_s = max((window.wall_s for window in windows), default=0.0)
    wait_s = max((window.data_wait_s for window in windows), default=0.0)
    if not wall_s:
        raise TuningError(f"{folder}: no timed steps in its events")
    rates = samples / wall_s, samples / (wall_s - wait_s)
    if sharded:
        return Run(*rates, Model(rates[1]))
    model_only = [one for rank in ranks for one in rank.ceilings if one.kind == "model"]
    if not model_only:
        return Run(*rates, None)
    made = sum(block.samples for block in model_only)
    rate = len(ranks) * made / sum(block.wall_s for block in model_only)
    return Run(*rates, Model(rate, sum(block.cpu_s or 0.0 for block in model_only) / made))


def drain(spec: RunSpec, manifest: Path, folder: Path) -> Drained:
    """Measure all loaders with as many processes as the run has ranks. Raises TuningError."""
    what, limit_s = "the loader-only measurement", DRAIN_TIMEOUT_S
    run_ranks(spec, "drain", folder, ["--data", str(manifest.parent)], what, limit_s)
    return gather([folder / ANSWER.format(rank) for rank in range(spec.count)])


def run_ranks(
    spec: RunSpec, job: str, folder: Path, options: Sequence[str], what: str, limit_s: float
) -> None:
    """Run a job of feedrate in `folder` on each rank of a run, with the host's lock, which training
    jobs take themselves. Raises TuningError, which says `what` failed, or DeviceError."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    write_json(folder / SPEC_NAME, msgspec.to_builtins(spec))
    module = ["feedrate", job, "--run", str(folder), *options]
    folders = [folder, *(Path(word) for word in options if word.startswith("/"))]
    made = launch.prepare(spec, module, folders, os.environ)
    try:
        with host_lock(lock_name(), partial(tell, "feedrate")) as lock:
            subprocess.run(
                made.command, env=made.environment, check=True, timeout=limit_s, pass_fds=[lock]
            )
    except subprocess.TimeoutExpired:
        raise TuningError(f"{what} took longer than {limit_s:g} s") from None
    except subprocess.CalledProcessError as error:
        code = error.returncode
        raise TuningError(f"{what} failed with exit code {code}; see the lines above") from None


def gather(files: Sequence[Path]) -> Drained:
    """The measurements of all ranks together, for the loaders that all ranks measured."""
    answers = [msgspec.json.decode(file.read_bytes(), type=Drained) for file in files]
    by_name: dict[str, list[Loader]] = {}
    refused: dict[tuple[str, bool], Refused] = {}
    for answer in answers:
        for loader in answer.loaders:
            by_name.setdefault(loader.name, []).append(loader)
        for one in answer.refused:
            refused.setdefault((one.decode, one.scaled), one)
    loaders = [
        msgspec.structs.replace(
            ranks[0],
            samples_per_s=sum(loader.samples_per_s for loader in ranks),
            startup_s=max(loader.startup_s for loader in ranks),
            cpu_s=fmean(loader.cpu_s for loader in ranks),
        )
        for ranks in by_name.values()
        if len(ranks) == len(files)
    ]
    return Drained(loaders, list(refused.values()), sum(answer.cores for answer in answers))
