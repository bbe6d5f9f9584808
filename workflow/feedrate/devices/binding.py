"""Each process of a job keeps to its share of the cores that the job was granted on its host.

Processes that wander disturb each other's caches and read memory of the other socket. Open MPI
binds its ranks itself; under the other launchers a rank narrows its own affinity, before any
library has started threads. Data-loader workers inherit it.
"""

import itertools
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from feedrate.config.settings import Kind
from feedrate.devices.host import cores_granted
from feedrate.devices.topology import Cpu, device_nodes, read_topology


@dataclass(frozen=True)
class Placement:
    """Where a rank runs."""

    granted: int
    """Cores that the whole job was granted on this host."""
    cpus: Sequence[int]
    """Logical CPUs that this rank keeps to."""

    def cores_of_rank(self, local_ranks: int) -> int:
        """Cores that this rank may keep busy: its CPUs, or its part of a smaller quota."""
        return max(1, min(len(self.cpus), self.granted // local_ranks))


def bind_rank(kind: Kind, local_rank: int, local_ranks: int) -> Placement:
    """Narrow this process to its share, and its threads to as many; call before torch is imported.

    The launcher that started this process still has all that was granted: a rank with less than
    that was bound by its launcher, and stays where it is.
    """
    granted = os.sched_getaffinity(os.getppid())
    mine = os.sched_getaffinity(0)
    if local_ranks > 1 and not mine < granted:
        nodes = device_nodes(kind, local_ranks)
        share = plan_shares(read_topology(granted), nodes)[local_rank]
        with suppress(OSError):  # a kernel that forbids it: the `start` event tells what is used
            os.sched_setaffinity(0, share)
        mine = os.sched_getaffinity(0)
    told = os.environ.get("OMP_NUM_THREADS", "")
    os.environ["OMP_NUM_THREADS"] = str(min(int(told), len(mine)) if told.isdigit() else len(mine))
    return Placement(cores_granted(affinity=len(granted)), sorted(mine))


def plan_shares(cpus: Sequence[Cpu], wanted: Sequence[int | None]) -> list[list[int]]:
    """The logical CPUs of each local rank; `wanted` is the NUMA node of each rank's device.

    Shares are disjoint, cover all `cpus` and differ by one CPU at most. A node's CPUs go first to
    the ranks whose devices are near it, evenly; what is left fills the others, and siblings of a
    core stay together where the counts allow it. With fewer CPUs than ranks these share them.
    """
    ordered = sorted(cpus)
    ranks = len(wanted)
    if len(ordered) < ranks:
        return [[ordered[rank % len(ordered)].number] for rank in range(ranks)]
    sizes = [len(part) for part in _parts(ordered, ranks)]
    shares: list[list[Cpu]] = [[] for _ in wanted]
    left: list[Cpu] = []
    for node in sorted({cpu.node for cpu in ordered}):
        here = [cpu for cpu in ordered if cpu.node == node]
        near = [rank for rank in range(ranks) if wanted[rank] == node]
        for rank, part in zip(near, _parts(here, len(near)), strict=True):
            shares[rank], rest = part[: sizes[rank]], part[sizes[rank] :]
            left += rest
        left += [] if near else here
    for share, size in zip(shares, sizes, strict=True):
        missing = size - len(share)
        share += left[:missing]
        del left[:missing]
    return [sorted(cpu.number for cpu in share) for share in shares]


def _parts(cpus: Sequence[Cpu], count: int) -> list[list[Cpu]]:
    """`cpus` cut into `count` runs whose lengths differ by one at most, longer ones first."""
    size, longer = divmod(len(cpus), count) if count else (0, 0)
    ends = [rank * size + min(rank, longer) for rank in range(count + 1)]
    return [list(cpus[start:end]) for start, end in itertools.pairwise(ends)]
