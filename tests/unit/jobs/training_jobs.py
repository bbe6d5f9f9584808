"""Specs and runs of jobs, for the tests of this folder."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import msgspec

import warm
from feedrate.config.spec import RunSpec
from feedrate.devices.launch import launch_command
from feedrate.jobs.events import EventLog, Window
from tiny_spec import tiny_spec

PASSES, FIRST_PASSES = 5, 2
"""Passes of a run of inference, and those before its window."""


def make_spec(
    *,
    workers=0,
    oversubscribe=True,
    batch_size=4,
    accumulation=1,
    count=1,
    kind="cpu",
    model=None,
    loader=None,
    train=None,
    **protocol,
) -> RunSpec:
    """A spec of the tiny model on the tiny dataset; `model`, `loader`, `train`: more settings."""
    return tiny_spec(
        device=kind,
        kind=kind,
        count=count,
        launcher="single" if count == 1 else "torchrun",
        cell=f"workers={workers}",
        levels={"workers": workers},
        # As many tokens as the texts have: other FLOPs are not counted apart, which takes a second.
        loader={"workers": workers, "oversubscribe": oversubscribe, "max_tokens": 6}
        | (loader or {}),
        model=model,
        train={"batch_size": batch_size, "gradient_accumulation": accumulation} | (train or {}),
        protocol={"ceiling_s": 0.0, **protocol},
    )


def inference_spec(*, model="bridgetower", head="contrastive", preprocessing="out", seed=7,
                   loader=None, protocol=None, **train) -> RunSpec:  # fmt: skip
    """An inference run of a tiny model: 5 passes of 2 pairs, the first 2 left out."""
    return tiny_spec(
        task="inference",
        cell="batch=2",
        levels={"batch": 2},
        seed=seed,
        model={"name": model},
        loader={"decode": "host", "max_tokens": 6, **(loader or {})},
        train={"batch_size": 2, **train},
        inference={"head": head, "preprocessing": preprocessing},
        protocol={"steps": PASSES, "warmup_steps": FIRST_PASSES, **(protocol or {})},
    )


def of_a_script() -> dict[str, str]:
    """The environment of a script beside this file: one thread, and the tests' own modules."""
    threads = {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}
    folders = [str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, **threads, "PYTHONPATH": os.pathsep.join(filter(None, folders))}


def run_ranks(script: str, *arguments: object, timeout: float, ranks: int = 2) -> str:
    """Run a script beside this file, under torchrun if it has several ranks; its error output."""
    command = launch_command(make_spec(count=ranks), [])
    _, *words = (part for part in command if part not in ("--module", "-m", "--"))
    words = ["-m", *words] if ranks > 1 else []
    place = Path(__file__).with_name(script)
    return subprocess.run(
        [warm.python(), *words, str(place), *map(str, arguments)],
        env=of_a_script(),
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    ).stderr


def write_spec(folder: Path, spec: RunSpec) -> Path:
    """`spec.json` in a folder that is made for it."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "spec.json").write_text(json.dumps(msgspec.to_builtins(spec)))
    return folder


def window(rank: int = 0) -> Window:
    """The window of a rank, with numbers that mean nothing."""
    return Window(rank=rank, first_step=2, last_step=3, steps=2, samples=8, wall_s=1.0)


def train_here(prepared: Path, run: Path, spec: RunSpec, options=None) -> list[dict]:
    """Run the only rank of a training job in this process; its events."""
    from feedrate.devices.placement import Placement
    from feedrate.jobs.train import run_job
    from feedrate.jobs.worker import Options

    write_spec(run, spec)
    run_job(spec, prepared, run, EventLog(run, 0), Placement(1, [0]), options or Options())
    return read_events(run / "events.jsonl")


def read_events(path: Path) -> list[dict]:
    """Events of a file that may not be there yet."""
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text().splitlines() if line.endswith("}")]


def named(events: list[dict], name: str) -> list[dict]:
    return [event for event in events if event["event"] == name]


def one(events: list[dict], name: str) -> dict:
    """The only event of a name."""
    (event,) = named(events, name)
    return event


def in_warm_processes(spec: RunSpec) -> RunSpec:
    """The same run with warm training processes."""
    software = msgspec.structs.replace(spec.software, python=warm.python())
    return msgspec.structs.replace(spec, software=software)


class Job:
    """A supervisor in a new interpreter; its training processes are warm unless `cold`. Jobs take
    turns, unless they have a `project` and a TMPDIR of their own."""

    def __init__(
        self,
        spec: RunSpec,
        prepared: Path,
        out: Path,
        *options: str,
        project: Path | None = None,
        cold: bool = False,
        **environment: str,
    ):
        self.out = out
        project = project or out.parents[4]
        out.parent.mkdir(parents=True, exist_ok=True)
        spec = spec if cold else in_warm_processes(spec)
        self.process = subprocess.Popen(
            [
                *(sys.executable, "-m", "feedrate", "train", "--out", str(out)),
                *("--spec", msgspec.json.encode(spec).decode()),
                *("--data", str(prepared / "manifest.json"), "--source-digest", "abc", *options),
            ],
            cwd=project,
            env={**os.environ, **environment},
            stderr=subprocess.PIPE,
            text=True,
        )

    @property
    def place(self) -> Path:
        """Where it works, as long as it does."""
        pattern = f".{self.out.name}.*.pid-{self.process.pid}-*"
        return next(self.out.parent.glob(pattern), self.out.parent / "not there")

    @property
    def events(self) -> Path:
        """The events of the job at work; while there are none, a file that is not there."""
        return self.place / "events.jsonl"

    def wait(self, timeout_s: float = 120) -> tuple[int, str]:
        """Exit code and stderr."""
        _, stderr = self.process.communicate(timeout=timeout_s)
        return self.process.returncode, stderr

    def until_steps(self, count: int = 1, timeout_s: float = 90) -> list[int]:
        """Wait for so many steps; all processes of the job at that moment."""
        deadline = time.monotonic() + timeout_s
        while len(named(read_events(self.events), "step")) < count:
            assert self.process.poll() is None, self.process.communicate()
            assert time.monotonic() < deadline
            time.sleep(0.05)
        return processes_below(self.process.pid)


def processes_below(root: int) -> list[int]:
    """Descendants by a walk over parents, not by the code under test."""
    parents = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            parents[int(folder.name)] = int(fields[1])
    below = {root}
    while more := {pid for pid, parent in parents.items() if parent in below} - below:
        below |= more
    return sorted(below - {root})


def survivors(pids: list[int], within_s: float = 15.0) -> list[int]:
    """Those of `pids` that still live after a while (zombies do not)."""

    def lives(pid: int) -> bool:
        try:
            return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
        except OSError:
            return False

    deadline = time.monotonic() + within_s
    while (alive := [pid for pid in pids if lives(pid)]) and time.monotonic() < deadline:
        time.sleep(0.05)
    return alive
