"""What is found on a Gaudi server, with a fault planted for each check."""

import sys
from pathlib import Path

import msgspec
import pytest
from doctor_parts import bad, look, package, program

from feedrate.config.project import Project
from feedrate.devices.doctor import FAILS, Finding
from tiny_spec import tiny_spec

pytestmark = pytest.mark.usefixtures("machine")


def gaudi_node(
    folder: Path,
    monkeypatch,
    *,
    torch: str = "2.9.0+git1234567",
    bridge: str = "def is_available(): return True\n",
    transformers: str = "4.55.4",
    mpirun: str = "mpirun (Open MPI) 4.1.6",
    kernels: str | None = "kernels.so",
    without: tuple[str, ...] = (),
) -> None:
    """A server with one Gaudi2 and Intel's software."""
    if "hl-smi" not in without:
        asked = 'case "$*" in *driver*) echo 1.24.0-480;; *) echo HL-225;; esac'
        program(folder, "hl-smi", asked)
    else:
        card = folder / "sys/class/accel/accel0/device"
        card.mkdir(parents=True)
        (card / "vendor").write_text("0x1da3\n")
        (card / "device").write_text("0x1020\n")
        (folder / "dev/accel").mkdir()
        (folder / "dev/accel/accel0").touch()
    if mpirun:
        program(folder, "mpirun", f"echo '{mpirun}'")
    package(folder, "torch", torch, __init__="import types\ncuda = None\n")
    package(folder, "habana_frameworks", "1", torch="", **{})
    frameworks = folder / "site/habana_frameworks"
    (frameworks / "torch.py").unlink()
    (frameworks / "torch").mkdir()
    (frameworks / "torch/__init__.py").touch()
    (frameworks / "torch/hpu.py").write_text(bridge)
    if "mediapipe" not in without:
        (frameworks / "mediapipe.py").touch()
    if "optimum-habana" not in without:
        package(folder, "optimum-habana", "1.21.2")
    package(folder, "transformers", transformers)
    package(folder, "accelerate", "1.10.1")
    (folder / "kernels.so").touch()
    if kernels is not None:
        monkeypatch.setenv("GC_KERNEL_PATH", str(folder / kernels))


def gaudi_job(launcher: str = "mpirun", **parts):
    """A run on one Gaudi2 that decodes on it."""
    parts = {"loader": {"decode": "device"}} | parts
    spec = tiny_spec(device="gaudi2", kind="hpu", launcher=launcher, **parts)
    software = msgspec.structs.replace(spec.software, python=sys.executable)
    return msgspec.structs.replace(spec, software=software)


def of_gaudi(project: Project) -> dict[str, Finding]:
    found = look(project, gaudi_job())
    return {subject.removeprefix("gaudi2: "): one for subject, one in found.items()}


STOCK = "raise AssertionError('Stock PyTorch version is not supported')\n"


def test_a_gaudi_server_in_order_is_fine(project, machine, monkeypatch):
    gaudi_node(machine, monkeypatch)
    found = of_gaudi(project)
    assert bad(found) == {}
    assert found["packages"].text == "torch 2.9.0+git1234567"


@pytest.mark.parametrize(
    ("fault", "subject", "outlook", "said"),
    [
        ({"torch": "2.13.0", "bridge": STOCK}, "habana_frameworks", FAILS, "not a stock one"),
        ({"bridge": "def is_available(): return False\n"}, "habana_frameworks", FAILS, "no device"),
        ({"without": ("optimum-habana",)}, "optimum", FAILS, "requirements/gaudi.py"),
        ({"transformers": "4.56.0"}, "releases", FAILS, "4.55, which were tried"),
        ({"without": ("mediapipe",)}, "media", FAILS, "capabilities"),
        ({"kernels": None}, "GC_KERNEL_PATH", FAILS, "KeyError"),
        ({"kernels": "absent.so"}, "GC_KERNEL_PATH", FAILS, "absent.so does not exist"),
        ({"mpirun": ""}, "software", FAILS, "mpirun"),
    ],
)
def test_each_fault_of_a_gaudi_server_is_found(
    project, machine, monkeypatch, fault, subject, outlook, said
):
    gaudi_node(machine, monkeypatch, **fault)
    monkeypatch.delenv("HABANA_PLUGINS_LIB_PATH", raising=False)
    one = of_gaudi(project)[subject]
    assert one.outlook == outlook
    assert said in f"{one.text} {one.remedy}"


def test_the_trainer_of_transformers_needs_neither_optimum_nor_its_releases(
    project, machine, monkeypatch
):
    gaudi_node(machine, monkeypatch, without=("optimum-habana",), transformers="5.20.0")
    assert bad(look(project, gaudi_job(hpu={"trainer": "transformers"}))) == {}


def test_an_interpreter_without_pip_fails(project, machine, monkeypatch):
    gaudi_node(machine, monkeypatch)
    (machine / "site/pip.py").write_text("raise SystemExit('No module named pip')\n")
    assert of_gaudi(project)["pip"].outlook == FAILS
