"""How the processes of a job are started, by launcher and kind; light enough for a supervisor."""

import os
import sys
from collections.abc import Mapping

from feedrate.config.settings import Kind, Launcher

MATTERS = (
    "OMP_NUM_THREADS",
    "OMP_WAIT_POLICY",
    "GOMP_CPU_AFFINITY",
    "KMP_AFFINITY",
    "LD_PRELOAD",
    "CUDA_VISIBLE_DEVICES",
    "PT_HPU_LAZY_MODE",
    "HABANA_VISIBLE_DEVICES",
    "NCCL_DEBUG",
)
"""Environment variables that change how fast a job runs."""


def launch_command(launcher: Launcher, count: int, cores: int, module: list[str]) -> list[str]:
    """The command that runs `module` (a module's name and its arguments) in `count` processes.

    `mpirun` has the form that optimum-habana's gaudi_spawn.py makes: ranks bound to `cores` each.
    """
    python = [sys.executable, "-m"]
    if launcher == "torchrun":
        return [
            *python,
            "torch.distributed.run",
            "--standalone",
            f"--nproc_per_node={count}",
            "--module",
            "--",  # else torchrun takes `--run` for an option of its own
            *module,
        ]
    if launcher == "mpirun":
        return [
            *("mpirun", "-n", str(count), "--bind-to", "core"),
            *("--map-by", f"socket:PE={cores}", "--rank-by", "slot", "--report-bindings"),
            *("--allow-run-as-root", *python, *module),
        ]
    return [*python, *module]


def launch_environment(
    kind: Kind, launcher: Launcher, count: int, cores: int, environment: Mapping[str, str]
) -> dict[str, str]:
    """`environment` with what a job needs; `cores` is each rank's share of the granted cores."""
    made = {
        **environment,
        "OMP_NUM_THREADS": str(cores),
        "TOKENIZERS_PARALLELISM": "false",
        "PYTHONUNBUFFERED": "1",
        # A checkpoint without safetensors is refused, not converted by a service behind our back.
        "DISABLE_SAFETENSORS_CONVERSION": "true",
    }
    if kind == "cpu":
        # Data-loader workers take cores from the model's threads, and a thread that spins at a
        # barrier keeps the one it waits for from running: on two cores a step took 25 times longer.
        made.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    if kind == "cuda":
        made["CUDA_VISIBLE_DEVICES"] = first_devices(environment.get("CUDA_VISIBLE_DEVICES"), count)
    if kind == "hpu":
        made.setdefault("PT_HPU_LAZY_MODE", "1")
    if launcher == "mpirun":
        made.setdefault("MASTER_ADDR", "localhost")
        made.setdefault("MASTER_PORT", "12345")
    return made


def told_environment(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The variables that a job's speed depends on, as they are set."""
    return {name: environment[name] for name in MATTERS if name in environment}


def first_devices(visible: str | None, count: int) -> str:
    """The first `count` of the devices that this job may see, so that no other is touched."""
    names = visible.split(",") if visible is not None else [str(i) for i in range(count)]
    return ",".join(names[:count])


def rank_from_environment(
    environment: Mapping[str, str] = os.environ,
) -> tuple[int, int, int, int]:
    """Rank, world size, local rank and local world size, as torchrun or Open MPI tells them."""

    def read(torchrun: str, mpi: str, default: int) -> int:
        return int(environment.get(torchrun, environment.get(mpi, default)))

    rank = read("RANK", "OMPI_COMM_WORLD_RANK", 0)
    world = read("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", 1)
    local_rank = read("LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", rank)
    return rank, world, local_rank, read("LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", world)
