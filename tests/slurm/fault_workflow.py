"""A workflow that submits its jobs to the cluster, with a driver that can be killed."""

import json
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
from cluster import Cluster
from mini_project import HELD, UNTRAINED, Project

from feedrate.core import scheduler

PROFILE = {
    "executor": "slurm",
    "jobs": 16,
    "local-cores": 2,
    "retries": 2,
    "default-resources": {"slurm_partition": "cpu", "mem_mb": 4000, "runtime": 20},
    "slurm-status-command": "squeue",
    "slurm-status-attempts": 100,
    "slurm-no-requeue": True,
    "slurm-jobname-prefix": scheduler.PREFIX,
    "slurm-init-seconds-before-status-checks": 1,
    "keep-going": True,
    "rerun-triggers": "mtime",
    "ignore-incomplete": True,
    "nolock": True,
    "latency-wait": 20,
    "scheduler": "greedy",
    "logger": "feedrate",
}
ONE_NODE = {"cpus_per_task": 4, "mem_mb": 4000, "slurm_extra": "'--exclusive'"}
PART_OF_A_NODE = {"slurm_partition": "network", "cpus_per_task": 1, "mem_mb": 4000}

# How the shell starts training processes, instead of an interpreter's `-m MODULE …`.
TRAIN = 'exec {python} "$@"'
HOLD = f'shift 2; exec {{python}} {HELD} after_step "$@"'
LOSE = f"""if [ $(grep -c "$(dirname "$5")/" trainings) = 1 ]; then {UNTRAINED}; fi; {TRAIN}"""
"""The first processes of a run never end."""
HANG = "exec sleep 3600"
FIRST_TRIES = "--allowed-rules train_({}) .*--attempt 1 "
"""Command lines of Snakemake in the first tries of a device's training jobs. Slurm counts the
memory of what is below its own steps. Warm programs are not; they only end with their clients."""
CELL = "runs/mini/{device}/{cell}~decode=host"


@dataclass
class Workflow:
    """A project that submits its jobs to the cluster, and its driver."""

    project: Project
    driver: subprocess.Popen | None = None
    cells: tuple[str, ...] = ()
    """The cells in the order in which they end."""

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

    def cell(self, device: str, cell: str = "workers=0") -> Path:
        return self.root / CELL.format(device=device, cell=cell)

    def outcome(self, device: str, cell: str = "workers=0") -> dict:
        """The outcome of the run of a cell, which has one."""
        (path,) = self.cell(device, cell).glob("rep1-*/outcome.json")
        return json.loads(path.read_text())

    def trainings(self, device: str, cell: str = "workers=0") -> int:
        """How often the processes of a run were started."""
        log = self.root / "trainings"
        lines = log.read_text().splitlines() if log.exists() else []
        return sum(f"{CELL.format(device=device, cell=cell)}/" in line for line in lines)

    def holds(self, device: str, cell: str = "workers=0") -> bool:
        """Whether its training, a `held_worker`, has made a step and now waits for `release`."""
        return any(path.is_fifo() for path in self.cell(device, cell).glob(".rep1-*/held"))

    def release(self, device: str, cell: str = "workers=0") -> None:
        """Let a training that holds go on."""
        for path in self.cell(device, cell).glob(".rep1-*/held"):
            path.write_text("")

    def waits(self, device: str, cell: str = "workers=0") -> bool:
        """Whether a job of the device waits for this host, where another one trains that cell."""
        logs = self.root.glob(f".snakemake/slurm_logs/rule_train_{device}/**/*.log")
        others = [log for log in logs if log.stem != self.job(device, cell)]
        return any("waiting: another job of feedrate" in log.read_text() for log in others)

    def job(self, device: str, cell: str = "workers=0") -> str:
        """The Slurm job ID of the first job that works on the run."""
        places = sorted(self.cell(device, cell).glob(".rep1-*.job-*"))
        return places[0].name.rpartition("job-")[2]

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
        """Files and folders that jobs left unfinished."""
        return [*self.root.glob("results/**/*.part"), *self.root.glob("runs/**/.rep*")]


def wait_for(condition: Callable[[], object], workflow: Workflow, timeout_s: float = 300) -> None:
    end = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end, f"{workflow.output}\n{workflow.processes()}"
        time.sleep(0.1)


def jobs_of(cluster: Cluster, workflow: Workflow, rule: str) -> list[str]:
    """The states of a rule's jobs, in Slurm's order."""
    return [job["JobState"] for job in cluster.jobs(workflow.root) if job["Rule"] == rule]


def node_of(job: str) -> str:
    return scheduler.find(job).nodes
