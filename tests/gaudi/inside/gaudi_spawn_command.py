"""The commands that optimum-habana's own launcher builds, on hosts of so many sockets and cores."""

import json
import os
import sys
from pathlib import Path
from tempfile import mkdtemp

from optimum.habana.distributed import DistributedRunner

LSCPU = """#!/bin/sh
echo 'Core(s) per socket:                  {cores}'
echo 'Socket(s):                           {sockets}'
"""


def command(sockets: int, cores: int, ranks: int) -> dict[str, object]:
    """What the launcher makes of a request for so many ranks."""
    folder = Path(mkdtemp())
    (folder / "lscpu").write_text(LSCPU.format(sockets=sockets, cores=cores))
    (folder / "lscpu").chmod(0o755)
    os.environ["PATH"] = f"{folder}:{os.environ['PATH']}"
    runner = DistributedRunner(["script.py --flag"], world_size=ranks, use_mpi=True)
    return {"command": runner._interpreter.split(), "environment": runner._model_env_vars}


answers = [command(*json.loads(line)) for line in sys.stdin]
print(json.dumps(answers))
