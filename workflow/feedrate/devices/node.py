"""One node's processes of a job on several: srun starts `python -m feedrate.devices.node ARGS` on
each, with torchrun's arguments.

Which node hosts the meeting point is told, not guessed: torchrun compares host names, and finds no
host where a node's own name leads to its loopback address, as it does on many a Debian.
"""

import os
import sys

WAIT_S = 600
"""How long a node waits for the others, which may have an image to fetch first."""


def main() -> None:
    """Run torchrun for this node."""
    from torch.distributed.run import main as torchrun  # heavy

    first = os.environ["SLURM_NODEID"] == "0"
    torchrun([f"--rdzv_conf=is_host={int(first)},read_timeout={WAIT_S}", *sys.argv[1:]])


if __name__ == "__main__":
    main()
