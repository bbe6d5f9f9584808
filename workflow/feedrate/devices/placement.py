"""Binds each rank of a job to its own share of the cores granted on its host.

Processes that move between cores disturb each other's caches, and read another socket's memory.
A rank narrows its own affinity before any library starts threads, in the same way under every
launcher. Data-loader workers inherit it. Without the kernel's files on its topology, all CPUs count
as cores of one socket and one node.
"""

import itertools
import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import psutil

from feedrate.config.spec import Kind
from feedrate.core.processes import listed_descendants
from feedrate.devices import host
from feedrate.devices.base import adapter_class
from feedrate.devices.host import cores_granted, kernel_number, kernel_text, parse_list


class Cpu(NamedTuple):
    """One logical CPU; siblings of one physical core have the same `core`. Sorts by place."""

    node: int  # NUMA node
    socket: int
    core: int  # the lowest CPU number among the siblings of its core
    number: int


def read_topology(cpus: Iterable[int]) -> list[Cpu]:
    """These logical CPUs, sorted by node, socket and core."""
    nodes = {
        cpu: int(folder.name.removeprefix("node"))
        for folder in (host.SYS / "devices/system/node").glob("node[0-9]*")
        for cpu in parse_list(kernel_text(folder / "cpulist"))
    }
    topology = []
    for number in cpus:
        folder = host.SYS / f"devices/system/cpu/cpu{number}/topology"
        socket = kernel_number(folder / "physical_package_id", 0)
        siblings = parse_list(kernel_text(folder / "thread_siblings_list"))
        topology.append(Cpu(nodes.get(number, 0), socket, min(siblings, default=number), number))
    return sorted(topology)


def cpus_text(cpus: Iterable[int]) -> str:
    """Numbers as the kernel lists them: "0-3,8-11"."""
    ranges: list[list[int]] = []
    for number in sorted(set(cpus)):
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    return ",".join(f"{first}-{last}" if last > first else f"{first}" for first, last in ranges)


class Placement(NamedTuple):
    """The cores of a rank."""

    granted: int  # cores that the whole job was granted on this host
    cpus: Sequence[int]  # logical CPUs that this rank is bound to

    def cores_of_rank(self, local_ranks: int) -> int:
        """Cores that this rank may use: its CPUs, or its part of a smaller quota."""
        return max(1, min(len(self.cpus), self.granted // local_ranks))


def bind_rank(kind: Kind, local_rank: int, local_ranks: int) -> Placement:
    """Bind this process to its share of the cores, and limit OMP_NUM_THREADS to their number. Call
    it before torch is imported. A rank with fewer cores than the launcher's process has been bound
    by the launcher, and keeps its cores. A rank alone keeps to its device's NUMA node, if it sees
    no other device: on Gaudi it gets any of them."""
    granted, own = os.sched_getaffinity(os.getppid()), os.sched_getaffinity(0)
    if not own < granted:
        nodes = adapter_class(kind).numa_nodes(os.environ)
        cpus = read_topology(granted)
        nodes_of_ranks = [*nodes, *[None] * local_ranks][:local_ranks]
        share = plan_shares(cpus, nodes_of_ranks)[local_rank]
        if local_ranks == 1 and len(nodes) == 1:
            share = [cpu.number for cpu in cpus if cpu.node == nodes[0]] or sorted(own)
        with suppress(OSError):  # if the kernel forbids it, the `start` event lists the cores used
            os.sched_setaffinity(0, share)
        own = os.sched_getaffinity(0)
    setting = os.environ.get("OMP_NUM_THREADS", "")
    threads = int(setting) if setting.isdigit() else len(own)
    os.environ["OMP_NUM_THREADS"] = str(min(threads, len(own)))
    return Placement(cores_granted(affinity=len(granted)), sorted(own))


def usable_cpus() -> set[int]:
    """The logical CPUs that both the threads of this process together, and the processes below it
    together, may use now. A library that spreads them over the CPUs takes none away."""
    threads = _cpus_of(int(task.name) for task in Path("/proc/self/task").iterdir())
    processes = _cpus_of(process.pid for process in listed_descendants(psutil.Process()))
    return threads & processes if processes else threads


def _cpus_of(numbers: Iterable[int]) -> set[int]:
    """The logical CPUs that any of these threads or processes may use."""
    cpus = set[int]()
    for number in numbers:
        with suppress(OSError):  # it has ended
            cpus |= os.sched_getaffinity(number)
    return cpus


def plan_shares(cpus: Sequence[Cpu], nodes: Sequence[int | None]) -> list[list[int]]:
    """The logical CPUs of each local rank; `nodes` is the NUMA node of each rank's device. Shares
    are disjoint, cover all `cpus` and differ by at most one CPU. The CPUs of a node go evenly to
    the ranks whose devices are on that node; the rest fill the other shares. Siblings of a core
    stay together if the counts allow it. With fewer CPUs than ranks, ranks share CPUs."""
    cpus, ranks = sorted(cpus), range(len(nodes))
    if len(cpus) < len(nodes):
        return [[cpus[rank % len(cpus)].number] for rank in ranks]
    sizes = [len(part) for part in _parts(cpus, len(nodes))]
    shares: list[list[Cpu]] = [[] for _ in ranks]
    spare: list[Cpu] = []
    for node in sorted({cpu.node for cpu in cpus}):
        cpus_of_node = [cpu for cpu in cpus if cpu.node == node]
        ranks_of_node = [rank for rank in ranks if nodes[rank] == node]
        if not ranks_of_node:
            spare += cpus_of_node
        parts = _parts(cpus_of_node, len(ranks_of_node))
        for rank, part in zip(ranks_of_node, parts, strict=True):
            shares[rank] = part[: sizes[rank]]
            spare += part[sizes[rank] :]
    for share, size in zip(shares, sizes, strict=True):
        missing = size - len(share)
        share += spare[:missing]
        del spare[:missing]
    return [sorted(cpu.number for cpu in share) for share in shares]


def _parts(cpus: Sequence[Cpu], count: int) -> list[list[Cpu]]:
    """`cpus` cut into `count` parts whose lengths differ by at most one, the longer ones first."""
    size, longer = divmod(len(cpus), count) if count else (0, 0)
    ends = [rank * size + min(rank, longer) for rank in range(count + 1)]
    return [list(cpus[start:end]) for start, end in itertools.pairwise(ends)]
