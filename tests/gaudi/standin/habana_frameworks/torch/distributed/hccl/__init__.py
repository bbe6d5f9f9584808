"""The collectives: gloo under the name of hccl.

On the device they take their turn in its stream, so that nothing waits for them and yet all that
follows sees what they made. Here they have ended when they return.
"""

import os
from typing import Any

import torch.distributed as dist

FROM_MPI = {
    "RANK": "OMPI_COMM_WORLD_RANK",
    "WORLD_SIZE": "OMPI_COMM_WORLD_SIZE",
    "LOCAL_RANK": "OMPI_COMM_WORLD_LOCAL_RANK",
}


def tell_rank() -> None:
    """Put what mpirun tells a process into the variables that torch reads."""
    if "RANK" not in os.environ and FROM_MPI["RANK"] in os.environ:
        os.environ |= {name: os.environ[mpi] for name, mpi in FROM_MPI.items()}


tell_rank()

_all_reduce = dist.all_reduce


def _in_turn(*args: Any, **kwargs: Any) -> Any:
    work = _all_reduce(*args, **kwargs)
    if work is not None:
        work.wait()
    return work


def _gloo(store: Any, rank: int, size: int, timeout: Any) -> Any:
    return dist.ProcessGroupGloo(store, rank, size, timeout)


dist.Backend.register_backend("hccl", _gloo, devices=["cpu", "hpu"])
dist.all_reduce = _in_turn
