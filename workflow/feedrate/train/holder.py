"""The process that holds a claim: what it makes, where it is, and whether it lives."""

import os
import secrets
import socket
from pathlib import Path

from feedrate import variables
from feedrate.cluster import slurm
from feedrate.config.base import Strict

PROC = Path("/proc")


class Identity(Strict, frozen=True, kw_only=True):
    """What a job makes: jobs of one identity would make the same result."""

    spec: str
    source: str
    data: str
    attempt: int

    def serves(self, wanted: "Identity") -> bool:
        """Whether a result of this identity is what `wanted` asks for.

        A plan counts attempts by the outcome that it finds, and begins anew where there is none:
        so a later attempt serves, and one that the plan has turned down does not.
        """
        same = (self.spec, self.source, self.data) == (wanted.spec, wanted.source, wanted.data)
        return same and self.attempt >= wanted.attempt


class Holder(Strict, frozen=True, kw_only=True):
    """The process that holds a claim, and for what."""

    identity: Identity
    token: str
    host: str
    space: str
    """Boot and process namespace: within one, process numbers can be compared."""
    pid: int
    started: int | None
    """When the process started, in the kernel's ticks: with the number, it is that process."""
    job: str
    """Slurm's number of the job; empty elsewhere."""
    since: str
    """When the job's driver began; its own word for itself."""

    def __str__(self) -> str:
        job = f", Slurm job {self.job}" if self.job else ""
        return f"process {self.pid} on {self.host}{job}"


def this_process(identity: Identity) -> Holder:
    """This process as a holder of claims."""
    return Holder(
        identity=identity,
        token=secrets.token_hex(4),
        host=socket.gethostname(),
        space=process_space(),
        pid=os.getpid(),
        started=start_ticks(os.getpid()),
        job=os.environ.get(slurm.JOB_ID, ""),
        since=os.environ.get(variables.DRIVER_SINCE, ""),
    )


def lives(holder: Holder) -> bool:
    """Whether a holder in this process space is alive."""
    started = start_ticks(holder.pid)
    return started is not None and started == holder.started


def process_space(proc: Path = PROC) -> str:
    """The kernel's boot and the process namespace that this process lives in."""
    boot = (proc / "sys/kernel/random/boot_id").read_text().strip()
    return f"{boot} {(proc / 'self/ns/pid').readlink()}"


def start_ticks(pid: int, proc: Path = PROC) -> int | None:
    """When a process started, in ticks since the boot; None where it has ended (proc(5))."""
    try:
        fields = (proc / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else int(fields[19])
