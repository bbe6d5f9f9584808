"""The feed certificate: emulated accelerators against a real model, its prediction against the
measured number, and its prediction for more cores.

`PYTHONPATH=. .venv/bin/python extras/loaders/benchmark.py` in the project's root takes all pieces;
with PIECE PREPARED [ROUNDS] it takes one, and prints one JSON object a line.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import msgspec
from benchmarks.default_study import ROOT, default_spec, prepare_default
from benchmarks.figure import Figure, show

from feedrate.config.spec import RunSpec
from feedrate.config.values import convert
from feedrate.devices.load import host_load

ROUNDS, REAL_ROUNDS = 3, 7
"""Of the rate limits; of the real model, whose rounds differ by up to 5% on a virtual machine."""
REAL_S, BATCH, TOKENS = 6.0, 8, 32
"""Time of the steps of the real model, s; its batch and its tokens."""
REAL: dict[str, tuple[str, str]] = {
    "compute-bound": ("host", "t"),
    "input-bound": ("reference", "f"),
    "bursts, compute-bound": ("host", "ffft"),
    "bursts, near balance": ("reference", "ffft"),
}
"""Decode path, and steps in turn: f, a forward pass only, is about three times as fast as t, a
training step."""
PACES = {"H100": (48, 8 * 48 / 602.1), "Gaudi2": (48, 8 * 48 / 847.7), "A100": (48, 8 * 48 / 345.4)}
"""Batch, and seconds of a step of BridgeTower Large: the fastest published rates of August 2023."""
WITHIN = 2.0
CORES_S = 5.0
"""Window of a drain on one core or two, s."""


def measure() -> Iterator[Figure]:
    """All pieces; needs two cores."""
    with tempfile.TemporaryDirectory() as name:
        prepared = str(prepare_default(Path(name)))
        yield from against_the_model(lines("real", prepared, str(REAL_ROUNDS)))
        for device in PACES:
            yield from predicted(lines("limits", prepared, device))
        yield from with_more_cores(lines("cores", prepared, str(ROUNDS)))


def lines(*words: str) -> list[dict[str, Any]]:
    """What a piece prints, run in a process of its own."""
    command = [sys.executable, __file__, *words]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    said = subprocess.run(
        command, cwd=ROOT, env=environment, check=True, stdout=subprocess.PIPE, text=True
    )
    return [json.loads(line) for line in said.stdout.splitlines()]


def against_the_model(found: Sequence[dict[str, Any]]) -> Iterator[Figure]:
    """Rate with the model's recorded steps against the rate with the model."""
    for name in dict.fromkeys(one["case"] for one in found):
        rounds = [one for one in found if one["case"] == name]
        errors = [100 * (one["replayed"] / one["real"] - 1) for one in rounds]
        waits = median(one["wait"] for one in rounds)
        busy = max(one["others"] for one in rounds)
        note = f"{', '.join(f'{error:+.2f}' for error in errors)}; waits {waits:.0%} of the time"
        note += f"; other work {busy:.0%}"
        yield Figure(f"certify: recorded steps, {name}", abs(median(errors)), WITHIN, "%", note)


def predicted(found: Sequence[dict[str, Any]]) -> Iterator[Figure]:
    """Predicted and measured numbers of accelerators."""
    for one in found:
        note = f"{one['feeds']:.2f} from the rate limit, {one['fed']} measured ({one['tried']})"
        note += f"; other work {one['others']:.0%}"
        off = abs(int(one["feeds"]) - one["fed"])
        yield Figure(f"certify: {one['device']}s, {one['level']}", off, 1, "devices", note)


def with_more_cores(found: Sequence[dict[str, Any]]) -> Iterator[Figure]:
    """Error of the rate limit on two cores, predicted from that on one."""
    for level in dict.fromkeys(one["level"] for one in found):
        rounds = [one for one in found if one["level"] == level]
        error = median(2 * one["one"] / one["two"] - 1 for one in rounds)
        rates = (median(one[key] for one in rounds) for key in ("one", "two"))
        note = "{:.0f} samples/s on one core, {:.0f} on two".format(*rates)
        note += f"; other work {max(one['others'] for one in rounds):.0%}"
        yield Figure(f"certify: two cores from one, {level}", 100 * abs(error), 10, "%", note)


# The pieces, each in a process of its own, because they bind themselves to cores.


def spec_of(size: str, batch_size: int, max_tokens: int, **loader: Any) -> RunSpec:
    """The default study's spec with these settings; `size` is the model's."""
    spec = default_spec()
    settings = spec["settings"]
    settings["model"]["size"], settings["train"]["batch_size"] = size, batch_size
    settings["loader"] |= {"max_tokens": max_tokens, **loader}
    return convert(spec, RunSpec, "default study")


def real(prepared: Path, rounds: int) -> None:
    """The loader's worker on one core; on the other CLIP, and then its recorded steps."""
    import torch

    torch.set_num_threads(1)
    steps = model_steps(prepared)
    for _ in range(rounds):
        for case, (decode, pattern) in REAL.items():
            start = used()
            done = run_real(prepared, decode, [steps[kind] for kind in pattern], seconds=REAL_S)
            busy_s = [one.busy_s for one in done]
            again = run_real(prepared, decode, busy_s, seconds=done[-1].ended_s - done[0].asked_s)
            rates = {"real": rate(done), "replayed": rate(again[: len(done)]), **others(start)}
            wait = 1 - sum(busy_s) / (done[-1].ended_s - done[0].asked_s)
            print(json.dumps({"case": case, "wait": wait, "steps": len(done), **rates}), flush=True)


def model_steps(prepared: Path) -> dict[str, Callable[[Any], None]]:
    """A training step (t) and a forward pass (f) of the smallest CLIP."""
    import torch

    from feedrate.config.settings import ModelSettings
    from feedrate.models.build import build

    spec = spec_of("tiny", BATCH, TOKENS)
    model = build(ModelSettings(name="clip", size="tiny"), spec.settings.loader, prepared).model
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)

    def train(batch: Any) -> None:
        model(**batch).loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    def forward(batch: Any) -> None:
        with torch.no_grad():
            model(**batch)

    return {"t": train, "f": forward}


def run_real(prepared: Path, decode: str, steps: Sequence[Any], *, seconds: float) -> list[Any]:
    """Steps on core 1, of the model (functions) or emulated (seconds), fed from core 0."""
    from feedrate.jobs.blocks import EndlessBatches
    from feedrate.loading.dataset import PairDataset
    from feedrate.loading.path import HostPath
    from feedrate.models.build import build_bare
    from feedrate_loaders.accelerator import Step, take_batches

    spec = spec_of("tiny", BATCH, TOKENS, decode=decode, workers=1)
    built = build_bare(spec.settings.model, spec.settings.loader, prepared)
    dataset = PairDataset(prepared, "train", built, spec.settings.loader)
    order = EndlessBatches(len(dataset), BATCH, seed=0)
    os.sched_setaffinity(0, {0})  # the worker inherits it
    batches = HostPath(spec.settings.loader, pin_memory=False).batches(dataset, order)
    next(batches)
    os.sched_setaffinity(0, {1})
    if not callable(steps[0]):
        found = take_batches(batches, steps, time.perf_counter() + seconds)
        batches.close()
        return found
    done: list[Step] = []
    asked_s = time.perf_counter()
    until_s = asked_s + seconds
    while asked_s < until_s:
        batch, got_s = next(batches), time.perf_counter()
        steps[len(done) % len(steps)](dataset.finish(batch))
        ended_s = time.perf_counter()
        done.append(Step(asked_s, ended_s, ended_s - got_s, BATCH))
        asked_s = ended_s
    batches.close()
    return done


def used() -> tuple[float, float, float]:
    """Now, CPU seconds that were wanted on the host, and those of this process and its workers."""
    load = host_load()
    return time.perf_counter(), load["cpu_wanted_s"], load["job_cpu_s"]


def others(start: tuple[float, float, float]) -> dict[str, float]:
    """The share of the host's cores that other work took since then."""
    wall_s, wanted_s, own_s = (now - then for now, then in zip(used(), start, strict=True))
    return {"others": (wanted_s - own_s) / wall_s / (os.cpu_count() or 1)}


def rate(steps: Sequence[Any]) -> float:
    """Samples/s of steps in a row."""
    return sum(one.samples for one in steps) / (steps[-1].ended_s - steps[0].asked_s)


def limits(prepared: Path, device: str) -> None:
    """The job of `feedrate certify` on all cores, at one pace."""
    from feedrate_loaders.feed import ANSWER, Answer, count_fed

    size, step_s = PACES[device]
    with tempfile.TemporaryDirectory() as name:
        spec = msgspec.json.encode(spec_of("large", size, 128))
        (Path(name) / "spec.json").write_bytes(spec)
        levels = [{"decode": "reference"}, {"decode": "host"}, {"decode": "host", "scaled": True}]
        request = json.dumps({"step_s": [step_s], "levels": levels})
        command = [sys.executable, "-m", "feedrate", "feed", "--run", name, "--data", str(prepared)]
        subprocess.run([*command, "--request", request], cwd=ROOT, check=True)
        answer = msgspec.json.decode((Path(name) / ANSWER).read_bytes(), type=Answer)
    for fed in answer.fed:
        assert fed.limit is not None, fed.refused
        tried = ", ".join(f"{one.accelerators}: {min(one.busy):.1%}" for one in fed.runs)
        numbers = {
            "feeds": count_fed(fed.limit.samples_per_s, [step_s], size),
            "fed": max((one.accelerators for one in fed.runs if one.fed), default=0),
            "others": max(of_others(one, answer.cores) for one in (fed.limit, *fed.runs)),
        }
        told = {"device": device, "level": fed.level.name, "tried": tried, **numbers}
        print(json.dumps(told), flush=True)


def cores(prepared: Path, rounds: int) -> None:
    """The rate limit of each level on one core and on two."""
    from feedrate_loaders import accelerator
    from feedrate_loaders.feed import Host, Level

    accelerator.WINDOW_S = CORES_S
    spec = spec_of("large", 48, 128)
    levels = [Level("reference"), Level("host"), Level("host", scaled=True)]
    hosts = {count: Host(spec, prepared, count) for count in (1, 2)}
    for _ in range(rounds):
        for level in levels:
            limits = []
            for count, host in hosts.items():
                os.sched_setaffinity(0, set(range(count)))
                limits.append(host.feed(level, host.dataset(level), 1, [0.0]))
            one, two = (limit.samples_per_s for limit in limits)
            shares = [of_others(limit, count) for limit, count in zip(limits, hosts, strict=True)]
            told = {"level": level.name, "one": one, "two": two, "others": max(shares)}
            print(json.dumps(told), flush=True)


def of_others(feeding: Any, cores: int) -> float:
    """Share of the cores' time in a window that other work took."""
    busy: float = feeding.cores_busy - feeding.cpu_s * feeding.samples_per_s / cores
    return busy


if __name__ == "__main__":
    match sys.argv[1:]:
        case []:
            sys.exit(min(figure.holds for figure in show(measure())) is False)
        case ["limits", folder, device]:
            limits(Path(folder), device)
        case [piece, folder, rounds]:
            {"real": real, "cores": cores}[piece](Path(folder), int(rounds))
