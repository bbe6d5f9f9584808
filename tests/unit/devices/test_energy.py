"""Counters of energy: the kernel's files as they are, drivers' libraries as stand-ins."""

import sys
from types import ModuleType

import pytest

from feedrate.devices.kinds import cpu
from feedrate.devices.kinds.cpu import Packages
from feedrate.devices.kinds.cuda import gpu_counter
from feedrate.devices.kinds.hpu import gaudi_counter

RANGE_UJ = 1_000_000


class Powercap:
    """A kernel's folder of counters."""

    def __init__(self, root):
        self.root = root

    def zone(self, number, name, energy_uj):
        folder = self.root / f"intel-rapl:{number}"
        folder.mkdir(exist_ok=True)
        (folder / "name").write_text(f"{name}\n")
        (folder / "max_energy_range_uj").write_text(f"{RANGE_UJ}\n")
        (folder / "energy_uj").write_text(f"{energy_uj}\n")


@pytest.fixture
def powercap(tmp_path):
    return Powercap(tmp_path)


def test_packages_are_summed_and_nothing_is_counted_twice(powercap):
    powercap.zone("0", "package-0", 1000)
    powercap.zone("0:0", "core", 500)  # part of its package
    powercap.zone("1", "package-1", 0)
    powercap.zone("2", "psys", 9000)  # the whole board
    counter = Packages(powercap.root)
    assert counter() == 0.0
    powercap.zone("0", "package-0", 301_000)
    powercap.zone("1", "package-1", 200_000)
    powercap.zone("2", "psys", 900_000)
    assert counter() == pytest.approx(0.5)
    assert counter() == pytest.approx(0.5)


def test_a_counter_that_starts_anew_goes_on(powercap):
    powercap.zone("0", "package-0", 900_000)
    counter = Packages(powercap.root)
    powercap.zone("0", "package-0", 100_000)
    assert counter() == pytest.approx(0.2)
    powercap.zone("0", "package-0", 50_000)
    assert counter() == pytest.approx(1.15)


def test_without_counters_nothing_is_known(powercap):
    assert Packages(powercap.root)() is None
    assert Packages(powercap.root / "absent")() is None
    powercap.zone("0", "psys", 5)
    assert Packages(powercap.root)() is None


def test_a_package_that_may_not_be_read_makes_all_unknown(powercap):
    powercap.zone("0", "package-0", 0)
    powercap.zone("1", "package-1", 0)
    counter = Packages(powercap.root)
    (powercap.root / "intel-rapl:1/energy_uj").unlink()
    assert counter() is None
    assert Packages(powercap.root)() is None


def test_the_first_rank_of_a_host_answers_for_its_processors():
    assert isinstance(cpu.DeviceAdapter(0, 2).energy_counter(), Packages)
    assert cpu.DeviceAdapter(1, 2).energy_counter()() == 0.0


class NVMLError(Exception):
    pass


@pytest.fixture
def driver(monkeypatch):
    """A library of a driver that counts 1,500 mJ a device, numbered or by name."""

    def _install(name, prefix, **functions):
        module = ModuleType(name)
        module.NVMLError = module.HLMLError = NVMLError
        made = {
            "Init": lambda: None,
            "DeviceGetCount": lambda: 8,
            "DeviceGetHandleByIndex": lambda index: f"card {index}",
            "DeviceGetHandleByUUID": lambda uuid: uuid,
            "DeviceGetModuleID": lambda card: int(card.removeprefix("card ")),
            "DeviceGetTotalEnergyConsumption": lambda handle: 1500,
        }
        for function, body in (made | functions).items():
            setattr(module, f"{prefix}{function}", body)
        monkeypatch.setitem(sys.modules, name, module)

    return _install


def fail(*_args):
    raise NVMLError("Not Supported")


def test_a_gpu_is_found_by_its_uuid_and_counted_in_joules(driver):
    asked = []
    driver("pynvml", "nvml", DeviceGetHandleByUUID=lambda uuid: asked.append(uuid) or "gpu")
    assert gpu_counter("1234-abcd")() == 1.5
    assert asked == ["GPU-1234-abcd"]


@pytest.mark.parametrize(
    "broken", ["Init", "DeviceGetHandleByUUID", "DeviceGetTotalEnergyConsumption"]
)
def test_a_gpu_that_does_not_count_is_not_known(driver, broken):
    driver("pynvml", "nvml", **{broken: fail})
    assert gpu_counter("1234")() is None


def test_a_driver_that_goes_away_makes_the_reading_unknown(driver):
    answers = iter([1500, 1600])
    driver(
        "pynvml", "nvml", DeviceGetTotalEnergyConsumption=lambda _: next(answers, None) or fail()
    )
    counter = gpu_counter("1234")
    assert counter() == 1.6
    assert counter() is None


@pytest.mark.parametrize("broken", ["Init", "DeviceGetCount", "DeviceGetModuleID"])
def test_a_gaudi_that_does_not_count_is_not_known(driver, broken):
    driver("pyhlml", "hlml", **{broken: fail})
    assert gaudi_counter("3")() is None


def test_a_gaudi_without_a_module_is_known_only_alone(driver):
    driver("pyhlml", "hlml")
    assert gaudi_counter(None)() is None
    driver("pyhlml", "hlml", DeviceGetCount=lambda: 1)
    assert gaudi_counter(None)() == 1.5


@pytest.mark.parametrize("name", ["pynvml", "pyhlml"])
def test_without_the_drivers_library_nothing_is_known(monkeypatch, name):
    monkeypatch.setitem(sys.modules, name, None)
    counter = gpu_counter("1234") if name == "pynvml" else gaudi_counter("0")
    assert counter() is None
