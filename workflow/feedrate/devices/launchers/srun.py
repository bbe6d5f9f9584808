"""Several nodes of a Slurm job: srun starts the job `node` on each, which starts torchrun.

The first node hosts the ranks' meeting point. `run_node` tells torchrun whether it runs there:
by itself, torchrun compares host names, and finds no host if a node's name resolves to its loopback
address (Debian).
"""

import os
from collections.abc import Mapping

from feedrate.config.spec import RunSpec
from feedrate.core import scheduler
from feedrate.devices.base import DeviceError

DEFAULT_FOR = "nodes"

FIRST_PORT, PORTS = 20_000, 10_000  # below those that Linux gives to clients
WAIT_S = 600  # for the other nodes, which may have to fetch an image


def command(spec: RunSpec, python: str, module: list[str]) -> tuple[list[str], list[str]]:
    """One torchrun on each node, with all resources of the job; each rank binds itself."""
    job, host, port = meeting(spec.nodes)
    starter = [
        "srun", f"--nodes={spec.nodes}", f"--ntasks={spec.nodes}", "--ntasks-per-node=1",
        "--kill-on-bad-exit=1", "--overlap", "--cpu-bind=none", "--mpi=none", "--export=ALL",
    ]  # fmt: skip
    node = [
        python, "-m", "feedrate", "node", f"--nnodes={spec.nodes}",
        f"--nproc_per_node={spec.count // spec.nodes}", "--rdzv_backend=c10d",
        f"--rdzv_endpoint={host}:{port}", f"--rdzv_id={job}", "--module", "--", *module,
    ]  # fmt: skip
    return starter, node


def meeting(nodes: int, environment: Mapping[str, str] = os.environ) -> tuple[str, str, int]:
    """The number of this Slurm job, and host and port on its first node where the nodes meet.
    Raises DeviceError without a job of so many nodes."""
    # Snakemake's job step keeps only this one of Slurm's variables.
    job = scheduler.this_job(environment)
    if not job.isdigit():
        raise DeviceError(
            f"launcher: srun starts {nodes} nodes of a Slurm job, and this is none (SLURM_JOB_ID "
            "is not set): use a profile with Slurm, or start it inside salloc or sbatch"
        )
    try:
        hosts, address = scheduler.hosts(job)
    except scheduler.SchedulerError as error:
        raise DeviceError(f"launcher: srun: the nodes of Slurm job {job}: {error}") from None
    if len(hosts) != nodes:
        names = f"{len(hosts)} ({', '.join(hosts)})"
        raise DeviceError(f"Slurm job {job} asked for {nodes} nodes and got {names}")
    return job, address, FIRST_PORT + int(job) % PORTS


def run_node(*words: str) -> None:
    """Run torchrun for this node, with its options."""
    from torch.distributed.run import main as torchrun  # heavy

    first = os.environ["SLURM_NODEID"] == "0"
    torchrun([f"--rdzv_conf=is_host={int(first)},read_timeout={WAIT_S}", *words])
