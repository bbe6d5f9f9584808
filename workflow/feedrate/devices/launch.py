"""How the processes of a job are started, by launcher and kind; light enough for a supervisor."""

import math
import os
import re
import subprocess
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from feedrate.config.spec import Launcher, RunSpec
from feedrate.devices import hpu_mode
from feedrate.devices.base import DeviceError
from feedrate.devices.host import cores_granted
from feedrate.devices.placement import Cpu, read_topology
from feedrate.devices.software import check_software, interpreter, software_environment, wrap

# The nodes that Slurm gave to this job, and where their processes meet.

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


MASTER_PORT = 29_500
"""Where ranks under mpirun meet: the default of optimum-habana's launcher (1.21.2)."""

RANKS = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE")
"""What launchers tell each process: a job started from inside another must not inherit it."""

TOLD = ("LD_PRELOAD",)
TOLD_PREFIXES = (
    *("OMP_", "GOMP_", "KMP_", "MKL_", "MALLOC_"),
    *("CUDA_", "NCCL_", "TORCH_", "PYTORCH_", "TORCHINDUCTOR_"),
    *("HABANA_", "HCCL_", "HCL_", "PT_"),
)
"""Environment variables that change how fast a job runs, by name or by prefix."""


@dataclass(frozen=True)
class Launch:
    """How to start a job's processes."""

    command: list[str]
    environment: dict[str, str]


class Parts(NamedTuple):
    """A command in two parts: the device's software comes between them."""

    outside: list[str]
    inside: list[str]


def prepare(
    spec: RunSpec, module: Sequence[str], folders: Iterable[Path], environment: Mapping[str, str]
) -> Launch:
    """How to run `module` (a module's name and its arguments) in each of the job's processes.

    `folders` are those that the module reads and writes. Raises DeviceError where what is needed
    for it is not there.
    """
    made = launch_environment(spec, environment)
    check_software(spec, made)
    return Launch(launch_command(spec, module, folders), made)


def launch_command(spec: RunSpec, module: Sequence[str], folders: Iterable[Path] = ()) -> list[str]:
    """The command alone. Raises DeviceError where several nodes are asked for and not there."""
    parts = LAUNCHERS[spec.launcher](spec, interpreter(spec.software), list(module))
    return [*parts.outside, *wrap(spec, parts.inside, folders)]


def _single(_spec: RunSpec, python: str, module: list[str]) -> Parts:
    return Parts([], [python, "-m", *module])


def _torchrun(spec: RunSpec, python: str, module: list[str]) -> Parts:
    flags = ["--standalone", f"--nproc_per_node={spec.count}"]
    # Without the two dashes torchrun takes `--run` for an option of its own.
    return Parts([], [python, "-m", "torch.distributed.run", *flags, "--module", "--", *module])


def _mpirun(spec: RunSpec, python: str, module: list[str]) -> Parts:
    binding = mpi_binding(spec.count, read_topology(os.sched_getaffinity(0)))
    return Parts([], [*mpi_command(spec.count, binding), python, "-m", *module])


def _srun(spec: RunSpec, python: str, module: list[str]) -> Parts:
    """One torchrun on each node. The step takes all that the job has on its nodes, and binds
    nothing: each rank finds its share there."""
    where = meeting(spec.nodes)
    outside = [
        *("srun", f"--nodes={spec.nodes}", f"--ntasks={spec.nodes}", "--ntasks-per-node=1"),
        *("--kill-on-bad-exit=1", "--overlap", "--cpu-bind=none", "--mpi=none", "--export=ALL"),
    ]
    inside = [
        *(python, "-m", "feedrate.devices.node", f"--nnodes={spec.nodes}"),
        *(f"--nproc_per_node={spec.count // spec.nodes}", "--rdzv_backend=c10d"),
        *(f"--rdzv_endpoint={where.host}:{where.port}", f"--rdzv_id={where.job}"),
        *("--module", "--", *module),
    ]
    return Parts(outside, inside)


LAUNCHERS: dict[Launcher, Callable[[RunSpec, str, list[str]], Parts]] = {
    "single": _single,
    "torchrun": _torchrun,
    "mpirun": _mpirun,
    "srun": _srun,
}


def mpi_command(ranks: int, binding: Sequence[str]) -> list[str]:
    """mpirun as `gaudi_spawn.py --use_mpi` of optimum-habana 1.21.2 calls it."""
    return ["mpirun", "-n", str(ranks), *binding, "--report-bindings", "--allow-run-as-root"]


def mpi_binding(ranks: int, cpus: Sequence[Cpu]) -> list[str]:
    """How mpirun is to lay `ranks` on these CPUs: an even number of whole cores each.

    By socket, as optimum-habana does, or by slot where sockets have one core each (a virtual
    machine) or cannot take their ranks. With fewer cores than ranks there is nothing to bind.
    """
    sockets = Counter(socket for socket, _ in {(cpu.socket, cpu.core) for cpu in cpus})
    cores = sockets.total() // ranks
    if not cores:
        return ["--oversubscribe", "--bind-to", "none"]
    most = math.ceil(ranks / len(sockets))
    uneven = any(there // cores < most for there in sockets.values())
    by = "slot" if uneven or max(sockets.values()) == 1 else "socket"
    return ["--bind-to", "core", "--map-by", f"{by}:PE={cores}", "--rank-by", "slot"]


def launch_environment(spec: RunSpec, environment: Mapping[str, str]) -> dict[str, str]:
    """`environment` with what a job needs, and without what other launchers left in it."""
    left = ["OMPI_", "PMI_", "PMIX_"]
    if spec.launcher == "mpirun":
        # Inside a Slurm job Open MPI would count the step's tasks, which is one, as its slots.
        left.append("SLURM_")
    kept = {
        name: value
        for name, value in environment.items()
        if name not in RANKS and not name.startswith(tuple(left))
    }
    return software_environment(spec.software, _needed(spec, kept), kept)


def _needed(spec: RunSpec, environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that a job needs; some keep the value that `environment` has."""
    ranks = spec.count // spec.nodes
    needed = {
        "OMP_NUM_THREADS": str(max(1, cores_granted() // ranks)),
        "TOKENIZERS_PARALLELISM": "false",
        "PYTHONUNBUFFERED": "1",
        # A checkpoint without safetensors is refused, not converted by a service behind our back.
        "DISABLE_SAFETENSORS_CONVERSION": "true",
    }
    if spec.kind == "cpu":
        # Data-loader workers take cores from the model's threads, and a thread that spins at a
        # barrier keeps the one it waits for from running: on two cores a step took 25 times longer.
        needed["OMP_WAIT_POLICY"] = environment.get("OMP_WAIT_POLICY", "PASSIVE")
        if spec.settings.train.memory_gib is not None:
            # Else each thread reserves addresses for a heap of its own, more with every core.
            needed["MALLOC_ARENA_MAX"] = "1"
    if spec.kind == "cuda":
        needed["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"  # so that a GPU's number tells where it is
        if spec.nodes == 1:  # on several, srun tells each node its own
            visible = environment.get("CUDA_VISIBLE_DEVICES")
            needed["CUDA_VISIBLE_DEVICES"] = first_devices(visible, ranks)
    if spec.kind == "hpu":
        needed |= hpu_mode.environment(spec.settings.hpu)
    if spec.launcher == "mpirun":
        needed["MASTER_ADDR"] = "localhost"
        needed["MASTER_PORT"] = environment.get("MASTER_PORT", str(MASTER_PORT))
    return needed


def told_environment(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The variables that a job's speed depends on, as they are set."""
    return {
        name: value
        for name, value in environment.items()
        if name in TOLD or name.startswith(TOLD_PREFIXES)
    }


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
