"""A workflow that submits its jobs to the cluster, with a driver that can be killed."""

import json
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
from mini_project import Project

from feedrate.core import slurm
from feedrate.jobs.run_lock import newest

RUN = "results/mini/{device}/{cell}~decode=host/rep1"


@dataclass
class Workflow:
    """A project that submits its jobs to the cluster, and its driver."""

    project: Project
    driver: subprocess.Popen | None = None

    @property
    def root(self) -> Path:
        return self.project.root

    @property
    def output(self) -> str:
        """Everything that its drivers have printed."""
        return self._output.read_text()

    @property
    def _output(self) -> Path:
        return self.root / "output"

    def start(self) -> None:
        """Start `python -m feedrate run`."""
        with self._output.open("a") as output:
            self.driver = subprocess.Popen(
                [self.project.python, "-m", "feedrate", "run", "--profile", "profiles/faults"],
                cwd=self.root,
                env=self.project.env() | {"TMPDIR": str(self.root.parent)},
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    def wait(self, timeout_s: float = 300) -> int:
        """Wait until the driver ends; return its exit code."""
        try:
            return self.driver.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"no end after {timeout_s} s: {self.output}") from None

    def kill(self) -> None:
        """Kill (-9) the driver and all processes that it has started itself on this host."""
        family = [psutil.Process(self.driver.pid)]
        family += family[0].children(recursive=True)
        for process in family:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        self.driver.wait()

    def run(self, device: str, cell: str = "workers=0") -> Path:
        return self.root / RUN.format(device=device, cell=cell)

    def outcome(self, device: str, cell: str = "workers=0") -> dict:
        return json.loads((self.run(device, cell) / "outcome.json").read_text())

    def trainings(self, device: str, cell: str = "workers=0") -> int:
        """How often the processes of a run were started."""
        log = self.root / "trainings"
        lines = log.read_text().splitlines() if log.exists() else []
        return sum(RUN.format(device=device, cell=cell) in line for line in lines)

    def trains(self, device: str, cell: str = "workers=0") -> bool:
        """Whether an attempt has made a step."""
        found = self.run(device, cell).glob("attempt-*/events.jsonl")
        return any('"step"' in events.read_text() for events in found)

    def job(self, device: str, cell: str = "workers=0") -> str:
        """The Slurm job ID of the job that holds the lock."""
        return newest(self.run(device, cell)).holder.job

    def processes(self) -> list[str]:
        """The command lines of all processes that work for the project, on any node."""
        found = []
        for process in psutil.process_iter(["cwd", "cmdline", "status", "ppid"]):
            told = " ".join(process.info["cmdline"] or [])
            mine = str(self.root) in told or str(process.info["cwd"]).startswith(str(self.root))
            # When a job is cancelled, Snakemake's process in it may hang at exit, without its
            # parent. Where cgroups track jobs, Slurm ends it; here there are none.
            hung = process.info["ppid"] == 1 and "slurm-jobstep" in told
            if mine and not hung and process.info["status"] != psutil.STATUS_ZOMBIE:
                found.append(told)
        return found

    def half_done(self) -> list[Path]:
        """Files that a job left unfinished, and records of runs that never ended."""
        found = [*self.root.glob("results/**/*.part"), *self.root.glob("results/**/attempt-*")]
        for record in self.root.glob("results/mini/*/*/rep1/record.json"):
            if not record.with_name("outcome.json").exists():
                found.append(record)
        return found


def wait_for(condition: Callable[[], object], workflow: Workflow, timeout_s: float = 120) -> None:
    end = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end, f"{workflow.output}\n{workflow.processes()}"
        time.sleep(0.1)


def node_of(job: str) -> str:
    return slurm.find(job).nodes


def interpreter(root: Path, device: str, start: str, python: str) -> Path:
    """An interpreter that logs every start of training processes."""
    path = root / f"python-{device}"
    path.write_text(
        '#!/bin/sh\ncase "$*" in "-m feedrate worker"*)\n'
        f'echo "$*" >> {root}/trainings; {start};;\nesac\nexec {python} "$@"\n'
    )
    path.chmod(0o755)
    return path
