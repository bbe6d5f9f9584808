"""Cores, sockets, NUMA nodes and devices, read from stand-in kernel files."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from feedrate.devices import placement
from feedrate.devices.placement import Cpu, cpus_text, device_nodes, parse_cpus, read_topology


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


def test_siblings_lie_side_by_side_node_by_node(tmp_path):
    make_host(tmp_path)
    found = read_topology(range(8), tmp_path)
    assert [cpu.number for cpu in found] == [0, 4, 1, 5, 2, 6, 3, 7]
    assert found[5] == Cpu(node=1, socket=1, core=2, number=6)
    assert [cpu.number for cpu in read_topology({7, 1}, tmp_path)] == [1, 7]


def test_without_kernel_files_every_cpu_is_a_core_of_one_socket(tmp_path):
    assert read_topology([3, 1], tmp_path) == [Cpu(0, 0, 1, 1), Cpu(0, 0, 3, 3)]


@given(st.sets(st.integers(0, 300)))
def test_a_list_of_cpus_survives_its_text(cpus):
    assert parse_cpus(cpus_text(cpus)) == sorted(cpus)


@given(st.text(max_size=20))
def test_no_text_breaks_the_reader(text):
    assert all(number >= 0 for number in parse_cpus(text))


def test_lists_are_written_as_the_kernel_does():
    assert cpus_text([11, 0, 1, 2, 3, 8, 9, 10, 20]) == "0-3,8-11,20"
    assert parse_cpus("0-3,8") == [0, 1, 2, 3, 8]
    assert parse_cpus("") == []


SMI = """\
0, GPU-1111aaaa-0000, 00000000:18:00.0
1, GPU-2222bbbb-0000, 00000000:3B:00.0
2, GPU-3333cccc-0000, 00000001:86:00.0
"""


@pytest.fixture
def gpus(tmp_path, monkeypatch):
    for address, node in (("0000:18:00.0", 0), ("0000:3b:00.0", 1), ("0001:86:00.0", -1)):
        write(tmp_path / "bus/pci/devices" / address / "numa_node", f"{node}\n")
    monkeypatch.setattr(placement, "_nvidia_smi", lambda: SMI)
    return tmp_path


@pytest.mark.parametrize(
    ("visible", "expected"),
    [
        (None, [0, 1]),
        ("1,0", [1, 0]),
        ("GPU-2222,GPU-1111aaaa-0000", [1, 0]),
        ("2,1", [None, 1]),  # the firmware does not tell
        ("9,MIG-x", [None, None]),
        ("1", [1, None]),
    ],
)
def test_gpus_are_near_the_node_of_their_pci_address(gpus, visible, expected):
    environment = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    assert device_nodes("cuda", 2, environment, gpus) == expected


def test_without_a_driver_nothing_is_known(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert device_nodes("cuda", 2, {}, tmp_path) == [None, None]
    assert device_nodes("hpu", 2, {}, tmp_path) == [None, None]
    assert device_nodes("cpu", 3) == [None] * 3


def test_hpus_go_by_module_and_not_by_device_number(tmp_path):
    for accel, module, node in ((0, 3, 1), (1, 0, 0), (2, 2, 1), (3, 1, 0)):
        folder = tmp_path / f"class/accel/accel{accel}/device"
        write(folder / "module_id", f"{module}\n")
        write(folder / "numa_node", f"{node}\n")
    write(tmp_path / "class/accel/accel_controlD0/device/module_id", "9\n")
    assert device_nodes("hpu", 4, {}, tmp_path) == [0, 0, 1, 1]
    chosen = {"HABANA_VISIBLE_MODULES": "2,0"}
    assert device_nodes("hpu", 2, chosen, tmp_path) == [1, 0]
