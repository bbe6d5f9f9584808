"""The nodes that Slurm gave to this job, and where their processes meet."""

import os
import re
import subprocess
from collections.abc import Mapping
from typing import NamedTuple

from feedrate.devices.base import DeviceError

JOB = "SLURM_JOB_ID"
"""Of Slurm's variables this one alone survives Snakemake's job step; the rest is asked for."""

FIRST_PORT, PORTS = 20_000, 10_000
"""Below the ports that Linux gives to clients by itself (32768 and up)."""


class Meeting(NamedTuple):
    """Where the nodes of a job find each other."""

    job: str
    host: str
    port: int


def meeting(nodes: int, environment: Mapping[str, str] = os.environ) -> Meeting:
    """The meeting point on the first node of this Slurm job.

    Raises DeviceError where there is no such job, or it does not have `nodes` nodes.
    """
    job = environment.get(JOB, "")
    if not job.isdigit():
        raise DeviceError(
            f"launcher: srun starts {nodes} nodes of a Slurm job, and this is none ({JOB} is not "
            "set): use a profile with Slurm, or start it inside salloc or sbatch"
        )
    listed = _field("NodeList", _ask("show", "job", job))
    hosts = _ask("show", "hostnames", listed).split()
    if len(hosts) != nodes:
        raise DeviceError(
            f"the job asked for {nodes} nodes and got {len(hosts)} ({listed}), Slurm job {job}"
        )
    address = _field("NodeAddr", _ask("show", "node", hosts[0]))
    return Meeting(job, address, FIRST_PORT + int(job) % PORTS)


def _ask(*arguments: str) -> str:
    """What scontrol answers. Raises DeviceError with its reason."""
    try:
        answer = subprocess.run(
            ["scontrol", *arguments], capture_output=True, text=True, timeout=60, check=False
        )
    except FileNotFoundError:
        raise DeviceError(
            "launcher: srun needs Slurm, and scontrol is not installed here"
        ) from None
    except subprocess.TimeoutExpired:
        raise DeviceError("Slurm's controller does not answer") from None
    if answer.returncode:
        reason = " ".join(answer.stderr.split()) or f"exit code {answer.returncode}"
        raise DeviceError(f"scontrol {' '.join(arguments)}: {reason}")
    return answer.stdout


def _field(name: str, text: str) -> str:
    """The value of `name=value` in scontrol's answer. Raises DeviceError where there is none."""
    found = re.search(rf"(?:^|\s){name}=(\S+)", text)
    if found is None or found[1] == "(null)":
        raise DeviceError(f"scontrol tells no {name}: {' '.join(text.split())[:200]}")
    return found[1]
