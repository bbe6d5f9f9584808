"""The collectives: gloo under the name of hccl."""

import os
from typing import Any

import torch.distributed as dist

FROM_MPI = {
    "RANK": "OMPI_COMM_WORLD_RANK",
    "WORLD_SIZE": "OMPI_COMM_WORLD_SIZE",
    "LOCAL_RANK": "OMPI_COMM_WORLD_LOCAL_RANK",
}

if "RANK" not in os.environ and FROM_MPI["RANK"] in os.environ:
    os.environ |= {name: os.environ[mpi] for name, mpi in FROM_MPI.items()}


def _gloo(store: Any, rank: int, size: int, timeout: Any) -> Any:
    return dist.ProcessGroupGloo(store, rank, size, timeout)


dist.Backend.register_backend("hccl", _gloo, devices=["cpu", "hpu"])
