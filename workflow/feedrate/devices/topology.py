"""How a host's logical CPUs lie in cores, sockets and NUMA nodes, and which node is near a device.

All is read from the kernel's files; what they do not tell is taken as one node, one socket, and a
core for each logical CPU.
"""

import os
import re
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from feedrate.config.settings import Kind

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
