"""Counters of energy: the kernel's files as they are, drivers' libraries as stand-ins."""

import os
import subprocess
import sys
from types import ModuleType, SimpleNamespace

import pytest

from feedrate.devices.kinds import cpu
from feedrate.devices.kinds._habana import gaudi_counter
from feedrate.devices.kinds.cpu import Packages
from feedrate.devices.kinds.cuda import gpu_condition, gpu_counter

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


class Process:
    def __init__(self, pid, smUtil=0):
        self.pid, self.smUtil = pid, smUtil


def sample(percent):
    return SimpleNamespace(sampleValue=SimpleNamespace(uiVal=percent))


WELL = {
    "DeviceGetCurrentClocksThrottleReasons": lambda _: 0x4,  # the power limit, as at full load
    "DeviceGetClockInfo": lambda _gpu, _clock: 1755,
    "DeviceGetEnforcedPowerLimit": lambda _: 700_000,
    "DeviceGetPowerManagementDefaultLimit": lambda _: 700_000,
    "DeviceGetComputeRunningProcesses": lambda _: [Process(os.getpid())],
    "DeviceGetProcessUtilization": lambda _gpu, _since: [Process(os.getpid(), 99)],
    "DeviceGetSamples": lambda _gpu, _kind, _since: (1, [sample(90), sample(96)]),
}


@pytest.fixture
def condition(driver):
    """What NVML is made to say of a GPU, where it differs from a GPU that only this job uses."""

    def _ask(**changes):
        driver("pynvml", "nvml", **(WELL | {f"DeviceGet{n}": f for n, f in changes.items()}))
        sys.modules["pynvml"].NVML_CLOCK_SM = 1
        sys.modules["pynvml"].NVML_GPU_UTILIZATION_SAMPLES = 1
        return gpu_condition("1234", 0.0)

    return _ask


def test_a_gpu_at_its_power_limit_with_this_job_alone_is_well(condition):
    assert condition() == {
        "clock_mhz": 1755,
        "throttle_reasons": 4,
        "busy": pytest.approx(0.93),
        "slowed_by": [],
        "limited_by": [],
        "others": 0,
        "others_busy": 0.0,
    }


@pytest.mark.parametrize(
    ("reasons", "slowed", "limited"),
    [
        (0x08, 1, 0),
        (0x40, 1, 0),
        (0x80, 1, 0),
        (0x20, 0, 1),
        (0x02, 0, 1),
        (0x01, 0, 0),
        (0xC8, 3, 0),
    ],
)
def test_what_lowers_the_clocks(condition, reasons, slowed, limited):
    found = condition(CurrentClocksThrottleReasons=lambda _: reasons)
    assert (len(found["slowed_by"]), len(found["limited_by"])) == (slowed, limited)


def test_a_lowered_power_limit(condition):
    found = condition(EnforcedPowerLimit=lambda _: 300_000)
    assert found["limited_by"] == ["a power limit of 300 W instead of 700"]


def test_another_process_and_its_share_of_the_gpu(condition):
    both = [Process(os.getpid()), Process(1)]
    found = condition(ComputeRunningProcesses=lambda _: both)
    assert (found["others"], found["others_busy"]) == (1, 0.0)
    used = [Process(os.getpid(), 60), Process(1, 35), Process(1, 5)]
    found = condition(
        ComputeRunningProcesses=lambda _: both, ProcessUtilization=lambda _gpu, _since: used
    )
    assert found["others_busy"] == pytest.approx(0.35)


def test_other_ranks_and_children_are_no_others(condition):
    with subprocess.Popen(["sleep", "60"]) as child:
        mine = [Process(os.getpid()), Process(child.pid)]
        found = condition(ComputeRunningProcesses=lambda _: mine)
        child.kill()
    assert found["others"] == 0


HOSTS = 1 << 23
"""A number that no process of this machine has."""


@pytest.mark.parametrize(("listed", "others"), [([], 0), ([HOSTS], 0), ([HOSTS, HOSTS + 1], 1)])
def test_in_a_container_one_of_the_numbers_is_ours(condition, listed, others):
    """There the driver gives the host's numbers of processes, which tell nothing about work."""
    processes = [Process(number, 50) for number in listed]
    found = condition(
        ComputeRunningProcesses=lambda _: processes,
        ProcessUtilization=lambda _gpu, _since: processes,
    )
    assert (found["others"], found["others_busy"]) == (others, 0.0)


def test_what_a_gpu_does_not_tell_is_left_open(condition):
    found = condition(**{name.removeprefix("DeviceGet"): fail for name in WELL})
    assert (found["clock_mhz"], found["busy"]) == (None, None)
    assert (found["slowed_by"], found["limited_by"], found["others"]) == ([], [], 0)


def test_without_nvml_nothing_is_known_of_a_gpu(monkeypatch, driver):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert gpu_condition("1234", 0.0) == {}
    driver("pynvml", "nvml", Init=fail)
    assert gpu_condition("1234", 0.0) == {}
