"""Each process of a job keeps to its share of the cores that the job was granted on its host.

Processes that wander disturb each other's caches and read memory of the other socket. Open MPI
binds its ranks itself; under the other launchers a rank narrows its own affinity, before any
library has started threads. Data-loader workers inherit it.
"""

import itertools
import os
import re
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from feedrate.config.spec import Kind
from feedrate.devices.host import cores_granted

# How a host's logical CPUs lie in cores, sockets and NUMA nodes, and which node is near a
# device.
# All is read from the kernel's files; what they do not tell is taken as one node, one socket,
# and a core for each logical CPU.

SYS = Path("/sys")


class Cpu(NamedTuple):
    """One logical CPU; siblings of one physical core share `core`. Orders by place."""

    node: int
    """NUMA node."""
    socket: int
    core: int
    """The lowest CPU number among the siblings of its core."""
    number: int


def read_topology(cpus: Iterable[int], sys: Path = SYS) -> list[Cpu]:
    """These logical CPUs by place: node by node, socket by socket, siblings side by side."""
    nodes = {
        cpu: int(folder.name.removeprefix("node"))
        for folder in (sys / "devices/system/node").glob("node[0-9]*")
        for cpu in parse_cpus(_read(folder / "cpulist"))
    }
    found = []
    for number in cpus:
        topology = sys / f"devices/system/cpu/cpu{number}/topology"
        siblings = parse_cpus(_read(topology / "thread_siblings_list"))
        socket = _number(_read(topology / "physical_package_id"), 0)
        core = min(siblings, default=number)
        found.append(Cpu(nodes.get(number, 0), socket, core, number))
    return sorted(found)


def parse_cpus(text: str) -> list[int]:
    """The numbers of a kernel's list, such as "0-3,8"; none where it is not such a list."""
    numbers: list[int] = []
    for part in text.strip().split(","):
        match = re.fullmatch(r"(\d+)(?:-(\d+))?", part.strip())
        if match is None:
            return []
        numbers += range(int(match[1]), int(match[2] or match[1]) + 1)
    return numbers


def cpus_text(cpus: Iterable[int]) -> str:
    """Numbers as the kernel lists them: "0-3,8-11"."""
    runs: list[list[int]] = []
    for number in sorted(set(cpus)):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(f"{first}-{last}" if last > first else f"{first}" for first, last in runs)


def device_nodes(
    kind: Kind, count: int, environment: Mapping[str, str] = os.environ, sys: Path = SYS
) -> list[int | None]:
    """The NUMA nodes of the devices of local ranks 0 to `count` - 1; None where unknown."""
    if kind == "cuda":
        nodes = [
            _node(sys / "bus/pci/devices" / address)
            for address in _gpu_addresses(_nvidia_smi(), environment.get("CUDA_VISIBLE_DEVICES"))
        ]
    elif kind == "hpu":
        nodes = [_node(folder) for folder in _hpu_folders(environment, sys)]
    else:
        nodes = []
    return [*nodes, *[None] * count][:count]


def _nvidia_smi() -> str:
    """`index, uuid, PCI address` of each GPU, a line each; empty where the driver does not tell."""
    try:
        answer = subprocess.run(
            ["nvidia-smi", "--query-gpu=index,uuid,pci.bus_id", "--format=csv,noheader"],
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return answer.stdout


def _gpu_addresses(listed: str, visible: str | None) -> list[str]:
    """PCI addresses of the GPUs that CUDA shows, in its order (CUDA_DEVICE_ORDER: PCI_BUS_ID).

    `visible` (CUDA_VISIBLE_DEVICES) may name them by index or by the beginning of their UUID. An
    address is empty where no GPU has that name.
    """
    gpus = [[part.strip() for part in line.split(",")] for line in listed.splitlines()]
    gpus = [gpu for gpu in gpus if len(gpu) == 3]
    if visible is None:
        chosen = [address for _, _, address in gpus]
    else:
        chosen = [
            next((a for index, uuid, a in gpus if name in (index, uuid) or _begins(uuid, name)), "")
            for name in map(str.strip, visible.split(","))
        ]
    # The driver writes the PCI domain with eight digits, the kernel with four.
    return [re.sub(r"^0000(?=[0-9a-f]{4}:)", "", address.lower()) for address in chosen]


def _begins(uuid: str, name: str) -> bool:
    return name.startswith("GPU-") and uuid.startswith(name)


def _hpu_folders(environment: Mapping[str, str], sys: Path) -> list[Path]:
    """The sysfs folders of the HPUs, in the order of their modules: local rank r takes the r-th.

    So the Gaudi software hands them out, and HABANA_VISIBLE_MODULES is its list of those to take.
    """
    by_module = {
        _number(_read(folder / "device/module_id"), -1): folder / "device"
        for folder in (sys / "class/accel").glob("accel[0-9]*")
    }
    by_module.pop(-1, None)
    modules = parse_cpus(environment.get("HABANA_VISIBLE_MODULES", "")) or sorted(by_module)
    return [by_module[module] for module in modules if module in by_module]


def _node(device: Path) -> int | None:
    """A device's NUMA node; the kernel says -1 where the firmware does not tell it."""
    node = _number(_read(device / "numa_node"), -1)
    return node if node >= 0 else None


def _number(text: str, otherwise: int) -> int:
    try:
        return int(text)
    except ValueError:
        return otherwise


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


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
