"""Cores, sockets, NUMA nodes and devices, read from stand-in kernel files."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from feedrate.devices import host
from feedrate.devices.base import adapter_class
from feedrate.devices.host import parse_list
from feedrate.devices.placement import Cpu, cpus_text, read_topology


@pytest.fixture
def sys_folder(tmp_path, monkeypatch):
    """A folder in place of /sys, and no driver's tool on PATH."""
    monkeypatch.setattr(host, "SYS", tmp_path)
    monkeypatch.setattr(host, "PROC", tmp_path / "proc")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    (tmp_path / "bin").mkdir()
    return tmp_path


def numa_nodes(kind: str, **environment: str) -> list[int | None]:
    return adapter_class(kind).numa_nodes(environment)


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def make_host(sys: Path) -> None:
    """Two sockets, a node each, with two cores of two threads: siblings are n and n + 4."""
    for node, cpus in enumerate(("0-1,4-5", "2-3,6-7")):
        write(sys / f"devices/system/node/node{node}/cpulist", f"{cpus}\n")
    for cpu in range(8):
        folder = sys / f"devices/system/cpu/cpu{cpu}/topology"
        write(folder / "thread_siblings_list", f"{cpu % 4},{cpu % 4 + 4}\n")
        write(folder / "physical_package_id", f"{cpu % 4 // 2}\n")


def test_siblings_lie_side_by_side_node_by_node(sys_folder):
    make_host(sys_folder)
    found = read_topology(range(8))
    assert [cpu.number for cpu in found] == [0, 4, 1, 5, 2, 6, 3, 7]
    assert found[5] == Cpu(node=1, socket=1, core=2, number=6)
    assert [cpu.number for cpu in read_topology({7, 1})] == [1, 7]


def test_without_kernel_files_every_cpu_is_a_core_of_one_socket(sys_folder):
    assert read_topology([3, 1]) == [Cpu(0, 0, 1, 1), Cpu(0, 0, 3, 3)]


@given(st.sets(st.integers(0, 300)))
def test_a_list_of_cpus_survives_its_text(cpus):
    assert parse_list(cpus_text(cpus)) == sorted(cpus)


@given(st.text(max_size=20))
def test_no_text_breaks_the_reader(text):
    assert all(number >= 0 for number in parse_list(text))


def test_lists_are_written_as_the_kernel_does():
    assert cpus_text([11, 0, 1, 2, 3, 8, 9, 10, 20]) == "0-3,8-11,20"
    assert parse_list("0-3,8") == [0, 1, 2, 3, 8]
    assert parse_list("") == []


SMI = """\
NVIDIA H100, GPU-1111aaaa-0000, 00000000:18:00.0, Disabled
NVIDIA H100, GPU-2222bbbb-0000, 00000000:3B:00.0, Disabled
NVIDIA H100, GPU-3333cccc-0000, 00000001:86:00.0, Disabled
"""


@pytest.fixture
def gpus(sys_folder):
    for address, node in (("0000:18:00.0", 0), ("0000:3b:00.0", 1), ("0001:86:00.0", -1)):
        write(sys_folder / "bus/pci/devices" / address / "numa_node", f"{node}\n")
    tool = sys_folder / "bin/nvidia-smi"
    tool.write_text(f"#!/bin/sh\n/bin/cat <<END\n{SMI}END\n")
    tool.chmod(0o755)


@pytest.mark.usefixtures("gpus")
@pytest.mark.parametrize(
    ("visible", "expected"),
    [
        ("1,0", [1, 0]),
        ("GPU-2222,GPU-1111aaaa-0000", [1, 0]),
        ("2,1", [None, 1]),  # the firmware does not report it
        ("9,MIG-x", [None, None]),
        ("1", [1]),
    ],
)
def test_gpus_are_near_the_node_of_their_pci_address(visible, expected):
    assert numa_nodes("cuda") == [0, 1, None]
    assert numa_nodes("cuda", CUDA_VISIBLE_DEVICES=visible) == expected


@pytest.mark.usefixtures("sys_folder")
def test_without_a_driver_nothing_is_known():
    assert [numa_nodes(kind) for kind in ("cpu", "cuda", "hpu")] == [[], [], []]


def test_gpus_of_the_drivers_files_have_their_address(sys_folder, monkeypatch):
    monkeypatch.setattr(host, "DEV", sys_folder / "dev")
    write(sys_folder / "dev/nvidia0", "")
    gpu = sys_folder / "proc/driver/nvidia/gpus/0000:3b:00.0/information"
    write(gpu, "Model: \t NVIDIA H100\nDevice Minor: \t 0\n")
    write(sys_folder / "bus/pci/devices/0000:3b:00.0/numa_node", "1\n")
    assert numa_nodes("cuda") == [1]


def test_hpus_go_by_module_and_not_by_device_number(sys_folder):
    for accel, module, node in ((0, 3, 1), (1, 0, 0), (2, 2, 1), (3, 1, 0)):
        folder = sys_folder / f"class/accel/accel{accel}/device"
        write(folder / "module_id", f"{module}\n")
        write(folder / "numa_node", f"{node}\n")
    write(sys_folder / "class/accel/accel_controlD0/device/module_id", "9\n")
    assert numa_nodes("hpu") == [0, 0, 1, 1]
    assert numa_nodes("hpu", HABANA_VISIBLE_MODULES="2,0") == [1, 0]


def test_a_missing_module_moves_no_other_to_another_rank(sys_folder):
    for module, node in ((0, 0), (2, 0), (5, 1)):
        folder = sys_folder / f"class/accel/accel{module}/device"
        write(folder / "module_id", f"{module}\n")
        write(folder / "numa_node", f"{node}\n")
    assert numa_nodes("hpu") == [0, None, 0, None, None, 1]
    assert numa_nodes("hpu", HABANA_VISIBLE_MODULES="5,1,0") == [1, None, 0]
