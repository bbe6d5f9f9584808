"""Several processes on one node, started and bound to cores by Open MPI."""

import math
import os
from collections import Counter
from collections.abc import Mapping, Sequence

from feedrate.config.spec import RunSpec
from feedrate.devices.launch import Parts
from feedrate.devices.placement import Cpu, read_topology

MAX_NODES = 1
PROGRAM = "mpirun"
MISSING = "install Open MPI or load its module (software.modules), or use launcher: torchrun"
RANK_VARIABLES = (
    "OMPI_COMM_WORLD_RANK",
    "OMPI_COMM_WORLD_SIZE",
    "OMPI_COMM_WORLD_LOCAL_RANK",
    "OMPI_COMM_WORLD_LOCAL_SIZE",
)
SETS = ("OMPI_*", "PMI_*", "PMIX_*")
HIDES = ("SLURM_*",)
"""In a Slurm job, Open MPI would take the step's number of tasks, which is one, as its slots."""

MASTER_PORT = "29500"
"""The port where the ranks meet: the default of optimum-habana's launcher (1.21.2)."""


def command(spec: RunSpec, python: str, module: list[str]) -> Parts:
    """mpirun with the arguments of `gaudi_spawn.py --use_mpi` in optimum-habana 1.21.2."""
    binding = bind(spec.count, read_topology(os.sched_getaffinity(0)))
    flags = [*binding, "--report-bindings", "--allow-run-as-root"]
    return Parts([], [PROGRAM, "-n", str(spec.count), *flags, python, "-m", *module])


def variables(environment: Mapping[str, str]) -> dict[str, str]:
    """The ranks' meeting point, which Open MPI does not set."""
    return {
        "MASTER_ADDR": "localhost",
        "MASTER_PORT": environment.get("MASTER_PORT", MASTER_PORT),
    }


def bind(ranks: int, cpus: Sequence[Cpu]) -> list[str]:
    """Options that bind `ranks` to these CPUs, each to the same number of whole cores.

    Ranks are mapped by socket, as optimum-habana does; by slot if sockets have one core each (a
    virtual machine) or a socket has too few cores for its ranks. With fewer cores than ranks, none
    is bound.
    """
    sockets = Counter(socket for socket, _ in {(cpu.socket, cpu.core) for cpu in cpus})
    cores = sockets.total() // ranks
    if not cores:
        return ["--oversubscribe", "--bind-to", "none"]
    most = math.ceil(ranks / len(sockets))
    uneven = any(there // cores < most for there in sockets.values())
    by = "slot" if uneven or max(sockets.values()) == 1 else "socket"
    return ["--bind-to", "core", "--map-by", f"{by}:PE={cores}", "--rank-by", "slot"]
