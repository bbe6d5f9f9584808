"""Accelerators of a machine, by stand-ins for the drivers' tools and files."""

import os
import stat

import pytest

from feedrate.core import variables
from feedrate.devices import host
from feedrate.devices.base import Card, adapter_class

H100 = "NVIDIA H100 80GB HBM3"


@pytest.fixture(autouse=True)
def bare(tmp_path, monkeypatch):
    """A machine without tools, drivers and cards; its root folder."""
    for folder in ("bin", "dev", "proc", "sys"):
        (tmp_path / folder).mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setattr(host, "DEV", tmp_path / "dev")
    monkeypatch.setattr(host, "PROC", tmp_path / "proc")
    monkeypatch.setattr(host, "SYS", tmp_path / "sys")
    for variable in (variables.DETECTED, "CUDA_VISIBLE_DEVICES", "HABANA_VISIBLE_MODULES"):
        # Set first, so that what a test leaves there is taken away again.
        monkeypatch.setenv(variable, "")
        monkeypatch.delenv(variable)
    return tmp_path


def tool(root, name, output, code=0):
    """A program on PATH that prints `output` if it is asked as the real one is."""
    asked = {
        "nvidia-smi": "--query-gpu=name,uuid,pci.bus_id,mig.mode.current --format=csv,noheader",
        "hl-smi": "-Q name -f csv,noheader",
    }[name]
    script = root / "bin" / name
    script.write_text(
        f'#!/bin/sh\n[ "$*" = "{asked}" ] || exit 2\n/bin/cat <<"END"\n{output}\nEND\nexit {code}\n'
    )
    script.chmod(script.stat().st_mode | stat.S_IXUSR)


def gpus(root, count, mig="Disabled", model=H100):
    rows = (f"{model}, GPU-{n}abc, 00000000:0{n}:00.0, {mig}" for n in range(count))
    tool(root, "nvidia-smi", "\n".join(rows))


def put(path, text=""):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_gpus_by_files_where_the_tool_is_absent(bare):
    for minor in range(2):
        put(
            bare / f"proc/driver/nvidia/gpus/0000:0{minor}:00.0/information",
            f"Model: \t\t {H100}\nIRQ:   \t\t 17\nGPU UUID: \t GPU-{minor}\n"
            f"Device Minor: \t {minor}\n",
        )
    put(bare / "dev/nvidia1")
    assert adapter_class("cuda").cards() == [Card(H100, "GPU-1", "0000:01:00.0")], (
        "the other is not ours to open"
    )


def test_gaudi_cards_by_files_where_the_tool_is_absent(bare):
    for number, (vendor, device) in enumerate(
        [("0x1da3", "0x1020"), ("0x8086", "0x7d1d"), ("0x1da3", "0x1060"), ("0x1da3", "0x1020")]
    ):
        put(bare / f"sys/class/accel/accel{number}/device/vendor", vendor + "\n")
        put(bare / f"sys/class/accel/accel{number}/device/device", device + "\n")
    for number in range(3):
        put(bare / f"dev/accel/accel{number}")
    assert [card.model for card in adapter_class("hpu").cards()] == ["GAUDI2", "GAUDI3"]


@pytest.mark.parametrize(
    ("name", "says", "code"),
    [
        ("nvidia-smi", "Failed to initialize NVML: Driver/library version mismatch", 18),
        ("nvidia-smi", "NVIDIA-SMI has failed because it couldn't communicate with the driver.", 9),
        ("nvidia-smi", "No devices were found", 6),
        ("nvidia-smi", "No devices were found", 0),
        ("nvidia-smi", 'Field "mig.mode.current" is not a valid field to query.', 2),
        ("hl-smi", "hl-smi: device, or resource, is busy", 0),
        ("hl-smi", "Failed to initialize: no such device", 1),
        ("hl-smi", "", 0),
    ],
)
def test_a_tool_that_fails_is_as_if_it_were_absent(bare, name, says, code):
    tool(bare, name, says, code)
    assert host.look({}).models == []


@pytest.mark.parametrize(
    ("name", "rows", "warning"),
    [
        (
            "nvidia-smi",
            f"{H100}, GPU-0abc, 00000000:01:00.0, Disabled",
            "WARNING: infoROM is corrupted at gpu 0000:01:00.0",
        ),
        ("hl-smi", "HL-225", "WARNING: firmware is older than the driver, update it"),
    ],
)
def test_a_tool_that_warns_has_answered_and_its_warning_is_shown(bare, capsys, name, rows, warning):
    tool(bare, name, f"{rows}\n{warning}", 14)
    assert len(host.look({}).models) == 1
    assert f"{name} ended with exit code 14: {warning}" in capsys.readouterr().err


def test_a_gpu_that_knows_no_slices(bare):
    uuid = "GPU-6e0d2c1a-8b0f-4c39-9d0e-1f2a3b4c5d6e"
    tool(bare, "nvidia-smi", f"NVIDIA L40S, {uuid}, 00000000:3B:00.0, [N/A]")
    assert adapter_class("cuda").cards() == [Card("NVIDIA L40S", uuid, "0000:3b:00.0")]


def test_a_tool_that_hangs_holds_nobody_up(bare, monkeypatch):
    monkeypatch.setattr(host, "TOOL_S", 0.05)
    script = bare / "bin/nvidia-smi"
    script.write_text("#!/bin/sh\nexec /bin/sleep 5\n")
    script.chmod(0o755)
    assert adapter_class("cuda").cards() == []


@pytest.mark.parametrize(
    ("wanted", "count"), [("0,1", 2), ("3", 1), ("GPU-2abc", 1), ("0, 1,9,2", 2), ("0,-1,1", 1)]
)
def test_what_cuda_is_told_to_see_is_what_counts(bare, wanted, count):
    gpus(bare, 4)
    assert len(host.look({"CUDA_VISIBLE_DEVICES": wanted}).models) == count


@pytest.mark.parametrize("wanted", ["", "-1", "MIG-123"])
def test_all_hidden_is_told(bare, wanted):
    gpus(bare, 4)
    found = host.look({"CUDA_VISIBLE_DEVICES": wanted})
    assert found.models == []
    assert f"CUDA_VISIBLE_DEVICES={wanted} hides all accelerators" in found.remark


def test_modules_of_gaudi_that_are_to_be_seen(bare):
    tool(bare, "hl-smi", "HL-225\n" * 4 + "HL325L\n" * 4)
    assert len(host.look({"HABANA_VISIBLE_MODULES": "4,5"}).models) == 2


@pytest.mark.parametrize(
    ("wanted", "count"), [("1", 1), ("GPU-1abc", 1), ("0", 0), ("0,1", 0), ("MIG-1", 0), (None, 0)]
)
def test_a_sliced_gpu_concerns_only_jobs_that_see_it(bare, wanted, count):
    rows = (
        f"{H100}, GPU-0abc, 00000000:01:00.0, Enabled\n{H100}, GPU-1abc, 00000000:02:00.0, Disabled"
    )
    tool(bare, "nvidia-smi", rows)
    found = host.look({} if wanted is None else {"CUDA_VISIBLE_DEVICES": wanted})
    assert (len(found.models), "MIG" in found.remark) == (count, not count)


def test_both_kinds_at_once_are_told(bare):
    gpus(bare, 1)
    tool(bare, "hl-smi", "HL-225")
    assert "both GPUs and Gaudi cards" in host.look({}).remark


def test_nothing_at_all(bare):
    assert host.look({}).remark.startswith("no accelerator was found on ")


@pytest.mark.parametrize(
    ("vendor", "pci_class", "words"),
    [
        ("0x10de", "0x030200", "an NVIDIA GPU"),
        ("0x1da3", "0x120000", "a Gaudi card"),
        ("0x10de", "0x040300", "no accelerator was found"),
        ("0x1002", "0x030000", "no accelerator was found"),
    ],
)
def test_hardware_without_a_driver_is_told(bare, vendor, pci_class, words):
    device = bare / "sys/bus/pci/devices/0000:01:00.0"
    put(device / "vendor", vendor)
    put(device / "class", pci_class)
    found = host.look({})
    assert words in found.remark
    assert ("no driver of it answers" in found.remark) == (not words.startswith("no"))


@pytest.mark.parametrize(
    ("pci_class", "is_accelerator"),
    [("0x120000", True), ("0x038000", True), ("0x030000", False), ("0x040300", False)],
)
def test_an_accelerator_that_no_kind_drives_is_refused_by_name(bare, pci_class, is_accelerator):
    device = bare / "sys/bus/pci/devices/0000:01:00.0"
    put(device / "vendor", "0x1002")
    put(device / "class", pci_class)
    assert ("AMD accelerator" in host.look({}).remark) == is_accelerator
    assert "ROCm" in host.look({}).remark or not is_accelerator


def test_jobs_are_told_and_do_not_look(bare):
    gpus(bare, 2)
    first = host.machine()
    assert len(first.models) == 2
    gpus(bare, 1)
    assert host.machine() == first
    del os.environ[variables.DETECTED]
    assert len(host.machine().models) == 1


def test_firmware_of_processors_and_cards_by_the_files_of_the_kernel(bare):
    assert host.firmware() == {}
    put(bare / "proc/cpuinfo", "processor\t: 0\nmicrocode\t: 0x2b000603\n" * 2)
    for minor, bios in enumerate(("96.00.74.00.01", "96.00.89.00.01", "??.??.??.??.??")):
        file = bare / f"proc/driver/nvidia/gpus/0000:0{minor}:00.0/information"
        put(file, f"Model: \t H100\nVideo BIOS: \t {bios}\nGPU Firmware: \t 570.124.06\n")
    put(bare / "sys/class/accel/accel0/device/cpucp_ver", "hl-gaudi2-1.22.0-fw-61.3.2.0\n")
    assert host.firmware() == {
        "microcode": "0x2b000603",
        "Video BIOS": "96.00.74.00.01, 96.00.89.00.01",
        "GPU Firmware": "570.124.06",
        "cpucp_ver": "hl-gaudi2-1.22.0-fw-61.3.2.0",
    }
