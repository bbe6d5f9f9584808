"""Ranks that start at different times time their passes side by side."""

import os
import socket
import subprocess
from pathlib import Path

import warm

RANK = """
import sys, time
from pathlib import Path
from feedrate.jobs.infer import wait_for_ranks
rank, folder = int(sys.argv[1]), Path(sys.argv[2])
if rank == 1:
    time.sleep(0.5)
    (folder / "late").touch()
wait_for_ranks(rank, 2)
assert (folder / "late").exists()
wait_for_ranks(0, 1)
import torch
assert not torch.distributed.is_initialized()
print("ready")
"""


def test_no_rank_begins_before_the_last_is_ready(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    environment = {**os.environ, "MASTER_ADDR": "localhost", "MASTER_PORT": str(port)}
    ranks = [
        subprocess.Popen(
            [warm.python(), "-c", RANK, str(rank), str(tmp_path)],
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in (0, 1)
    ]
    assert [rank.communicate(timeout=120)[0].strip() for rank in ranks] == ["ready", "ready"]
