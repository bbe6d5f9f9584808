"""`python -m feedrate tune`: measure loaders and model on this machine, and say what to use.

Takes the spec of a run, changes nothing of it but the loader, and leaves advice.txt (also printed)
and tuning.json in a folder. It trains twice, for a few seconds each: for the model's own rate, and
to check what is expected of the settings that it advises.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

import msgspec

from feedrate.cli import advice
from feedrate.cli.advice import Choice, Model, Run, choose
from feedrate.cli.snakemake import add_choices, check_options, config_arguments, run_snakemake
from feedrate.config.spec import RunSpec
from feedrate.core import paths, variables
from feedrate.core.errors import ExpectedError, tell
from feedrate.core.files import write_json, write_text
from feedrate.core.paths import LOG_NAME, OUTCOME_NAME, SPEC_NAME
from feedrate.devices import launch
from feedrate.devices.host import host_lock, lock_path
from feedrate.jobs.drain import Loader, Refused, answer_file, with_loader
from feedrate.jobs.events import read_run_events

STEPS = 30
"""Timed steps of the two runs."""
SHARDED_WORKERS = 2
"""With so many the rate of a sharded model is taken from a run, so that loading runs beside."""
CEILING_S = 3.0
DRAIN_TIMEOUT_S = 1800


class Drained(NamedTuple):
    """What the loaders alone made."""

    loaders: list[Loader]
    refused: list[Refused]
    cores: float
    """Of all ranks together."""


class TuningError(ExpectedError):
    """Something was not measured; the message says what to look at."""


def tune_device(spec: RunSpec, data: Path, out: Path) -> None:
    """Measure every loader and the model of `spec` on this machine, and write `out` (advice.txt)
    and tuning.json beside it. `data` is prepared/manifest.json."""
    lines, numbers = tune(short(spec), data, out.parent)
    write_json(out.with_name("tuning.json"), numbers)
    write_text(out, "\n".join(lines) + "\n")
    if not os.environ.get(variables.ADVICE_LATER):
        print("\n".join(lines), flush=True)


def short(spec: RunSpec) -> RunSpec:
    """The run as short as a rate allows, with the pixels of a full decode."""
    protocol = msgspec.structs.replace(
        spec.protocol,
        steps=spec.protocol.warmup_steps + STEPS,
        ceiling_s=CEILING_S,
        evaluate=False,
        save_checkpoints=False,
    )
    return with_loader(msgspec.structs.replace(spec, protocol=protocol), scaled_decode=False)


def tune(spec: RunSpec, manifest: Path, out: Path) -> tuple[list[str], dict[str, object]]:
    """Measure, choose and check; the advice and its numbers.

    Raises DeviceError or TuningError where something cannot be measured.
    """
    sharded = spec.settings.train.strategy == "fsdp"
    workers = SHARDED_WORKERS if sharded else 0
    beside = with_loader(spec, decode="host", workers=workers, oversubscribe=sharded)
    plain = train(beside, manifest, out / "model")
    if plain.model is None:
        raise TuningError(f"the model alone was not measured; see {out / 'model' / LOG_NAME}")
    loaders, refused, cores = drain(spec, manifest, out / "loaders")
    if not loaders:
        raise TuningError(f"no loader could be measured: {refused[0].why}")
    in_loop = plain.computes_per_s
    model = plain.model._replace(samples_per_s=in_loop, cores=cores)
    choice = choose(loaders, model)
    picked = {"decode": choice.loader.decode, "workers": choice.loader.workers}
    run = train(with_loader(spec, **picked), manifest, out / "check")
    lines = [
        advice.model_takes(spec.device, plain, in_loop, sharded=sharded),
        *advice.advice(loaders, refused, model, choice, run),
    ]
    return lines, told(model, loaders, refused, choice, run)


def told(
    model: Model, loaders: list[Loader], refused: list[Refused], choice: Choice, run: Run
) -> dict[str, object]:
    """The numbers behind the advice."""
    return {
        "model_samples_per_s": model.samples_per_s,
        "model_cpu_s_per_sample": model.cpu_s,
        "cores": model.cores,
        "loaders": msgspec.to_builtins(loaders),
        "refused": msgspec.to_builtins(refused),
        "use": {"decode": choice.loader.decode, "workers": choice.loader.workers},
        "expected_samples_per_s": choice.expected,
        "measured_samples_per_s": run.samples_per_s,
        "error": choice.expected / run.samples_per_s - 1,
    }


def train(spec: RunSpec, manifest: Path, folder: Path) -> Run:
    """A real run by the job's own entry. Raises TuningError where it does not end well."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    asked = folder.with_suffix(".json")
    write_json(asked, msgspec.to_builtins(spec))
    command = [sys.executable, "-m", "feedrate.jobs.supervisor", "--spec", str(asked), "--quiet"]
    command += ["--data", str(manifest), "--out", str(folder)]
    ended = subprocess.run(command, check=False)
    outcome = folder / OUTCOME_NAME
    said = json.loads(outcome.read_text(encoding="utf-8")) if outcome.is_file() else {}
    if ended.returncode or said.get("status") != "ok":
        cause = said.get("cause") or f"exit code {ended.returncode}"
        raise TuningError(f"a run with {spec.settings.loader.decode} failed: {cause}")
    return read_run(folder, sharded=spec.settings.train.strategy == "fsdp")


def read_run(folder: Path, *, sharded: bool = False) -> Run:
    """The rates of a run, all ranks: its timed steps, these without the longest time that a rank
    waited for data (the others waited for that rank), and the model alone.

    Sharded ranks cannot compute apart: their steps without the wait stand for the model.
    """
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
    alone = [ceiling for rank in ranks for ceiling in rank.ceilings if ceiling.kind == "model"]
    if not alone:
        return Run(*rates, None)
    rate = sum(ceiling.samples / ceiling.wall_s for ceiling in alone)
    cpu_s = sum(ceiling.cpu_s or 0.0 for ceiling in alone)
    return Run(*rates, Model(rate, cpu_s / sum(ceiling.samples for ceiling in alone)))


def drain(spec: RunSpec, manifest: Path, folder: Path) -> Drained:
    """The rates of all loaders, by as many processes as the run has ranks, alone on this host.

    The lock is held for the drain only: the runs before and after it take it themselves.
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    write_json(folder / SPEC_NAME, msgspec.to_builtins(spec))
    module = ["feedrate.jobs.drain", "--run", str(folder), "--data", str(manifest.parent)]
    job = launch.prepare(spec, module, [folder, manifest.parent], os.environ)
    try:
        with host_lock(lock_path(), partial(tell, "feedrate tune-device")) as lock:
            subprocess.run(
                job.command,
                env=job.environment,
                check=True,
                timeout=DRAIN_TIMEOUT_S,
                pass_fds=[lock],
            )
    except subprocess.TimeoutExpired as error:
        raise TuningError(
            f"the loaders alone were not measured within {DRAIN_TIMEOUT_S} s"
        ) from error
    except subprocess.CalledProcessError as error:
        raise TuningError(
            f"the loaders alone could not be measured (exit code {error.returncode}; the cause is "
            "told above)"
        ) from error
    return gather([answer_file(folder, rank) for rank in range(spec.count)])


def gather(files: Sequence[Path]) -> Drained:
    """What the ranks measured, together, of the loaders that all of them have; the slowest start
    counts."""
    answers = [json.loads(file.read_text(encoding="utf-8")) for file in files]
    by_name: dict[str, list[Loader]] = {}
    refused: dict[tuple[str, bool], Refused] = {}
    for answer in answers:
        for loader in msgspec.convert(answer["loaders"], list[Loader]):
            by_name.setdefault(loader.name, []).append(loader)
        for level in msgspec.convert(answer["refused"], list[Refused]):
            refused.setdefault((level.decode, level.scaled), level)
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
    return Drained(loaders, list(refused.values()), sum(answer["cores"] for answer in answers))


# `python -m feedrate tune`: which loader settings to use on this machine, and what to expect.


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of this command."""
    add_choices(parser)


def run(options: argparse.Namespace, others: list[str]) -> int:
    """Measure again and print the new advice; return the exit code."""
    check_options(options, others)
    started_s = time.time()
    arguments = ["--profile", options.profile, "tune", *others, *config_arguments(options)]
    code = run_snakemake(arguments, environment={variables.ADVICE_LATER: f"{started_s}"})
    there = sorted(Path().glob(paths.ADVICE.format(device="*")))
    new = [advice for advice in there if advice.stat().st_mtime >= started_s]
    predictions = Path(paths.PREDICTIONS)
    for told in [*new, *[predictions] * (bool(new) and predictions.is_file())]:
        print(f"\n{told.read_text(encoding='utf-8').rstrip()}")
    return code
