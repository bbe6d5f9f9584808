"""A vendor's software where a device's entry names none: its interpreter, variables and pip."""

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from job_specs import make_job

from feedrate.core import plugins, variables
from feedrate.devices import launch
from feedrate.devices.base import DeviceError
from feedrate.devices.kinds import hpu
from feedrate.devices.launch import interpreter, launch_environment, prepare

JOB = make_job("torchrun", 2, kind="hpu")


@pytest.fixture(autouse=True)
def places(tmp_path, monkeypatch):
    """Interpreters are searched below a folder of the test's own."""
    searched = (
        f"{tmp_path}/usr/bin/python3",
        "$HABANALABS_VIRTUAL_DIR/bin/python",
        "~/venv/bin/python",
    )
    declared = {"VENDOR_INTERPRETERS": searched, "VENDOR_MODULE": "habana_frameworks",
                "VENDOR_PROFILE": f"{tmp_path}/habanalabs.sh"}  # fmt: skip
    real = plugins.declared
    monkeypatch.setattr(
        plugins,
        "declared",
        lambda package, name: {"hpu": declared[name]} if name in declared else real(package, name),
    )
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for variable in (variables.PYTHON, "HABANALABS_VIRTUAL_DIR"):
        monkeypatch.delenv(variable, raising=False)
    return tmp_path


def python(path: Path, *, has: bool = True) -> str:
    """An interpreter that has the vendor's module, or lacks it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\nexit {0 if has else 1}\n")
    path.chmod(0o755)
    return str(path)


def chosen(**environment: str) -> str:
    return interpreter(launch.with_interpreter(JOB, {**os.environ, **environment}).software)


def test_the_search_follows_the_users_choice_the_systems_and_the_usual_environments(places):
    home = python(places / "home/venv/bin/python")
    assert chosen() == home
    system = python(places / "usr/bin/python3")
    assert chosen() == system
    own = python(places / "own/python")
    assert chosen(**{variables.PYTHON: own}) == own
    python(places / "own/python", has=False)
    with pytest.raises(DeviceError, match="own/python"):
        chosen(**{variables.PYTHON: own})
    python(places / "usr/bin/python3", has=False)
    other = python(places / "v/bin/python")
    assert chosen(HABANALABS_VIRTUAL_DIR=str(places / "v")) == other


def test_a_file_that_is_no_program_is_passed_over(places):
    (places / "usr/bin").mkdir(parents=True)
    (places / "usr/bin/python3").write_text("not a program")
    (places / "usr/bin/python3").chmod(0o755)
    home = python(places / "home/venv/bin/python")
    assert chosen() == home


def test_a_real_interpreter_is_searched_for_the_module(places, monkeypatch):
    real = plugins.declared
    monkeypatch.setattr(
        plugins,
        "declared",
        lambda package, name: {"hpu": "json"} if name == "VENDOR_MODULE" else real(package, name),
    )
    monkeypatch.setattr(launch.importlib.util, "find_spec", lambda _: None)
    assert chosen(**{variables.PYTHON: sys.executable}) == sys.executable


def test_without_one_the_line_to_add_is_told_before_anything_is_started(places):
    python(places / "usr/bin/python3", has=False)
    with pytest.raises(DeviceError, match=r"software: \{python: .*FEEDRATE_PYTHON"):
        prepare(JOB, ["module"], [], os.environ)


def test_an_entry_that_names_its_software_is_left_alone(places):
    for named in ({"python": "/x/python"}, {"modules": ["m"]}, {"container": "x.sif"}):
        job = make_job(kind="hpu", **named)
        assert launch.with_interpreter(job, os.environ) is job


def test_other_kinds_and_an_interpreter_that_has_it_need_no_search(places, monkeypatch, tmp_path):
    job = make_job()
    assert launch.with_interpreter(job, os.environ) is job
    (tmp_path / "habana_frameworks").mkdir()
    monkeypatch.syspath_prepend(str(tmp_path))
    assert launch.with_interpreter(JOB, os.environ) is JOB
    own = python(places / "own/python")
    assert chosen(**{variables.PYTHON: own}) == own, "the user's choice comes first"


PROFILE = """
export GC_KERNEL_PATH=/usr/lib/kernels.so
export HABANA_LOGS=/var/log
export MPI_ROOT=/opt/openmpi
export PATH=${MPI_ROOT}/bin:${PATH}
echo noise
"""


def test_jobs_get_what_the_vendors_profile_sets(places):
    (places / "habanalabs.sh").write_text(PROFILE)
    made = launch_environment(JOB, {"PATH": "/usr/bin:/bin", "HABANA_LOGS": "/mine"})
    assert made["GC_KERNEL_PATH"] == "/usr/lib/kernels.so"
    assert made["HABANA_LOGS"] == "/mine", "the user's own value stays"
    assert made["PATH"] == "/opt/openmpi/bin:/usr/bin:/bin"
    entry = make_job(kind="hpu", environment={"GC_KERNEL_PATH": "/registry"})
    assert launch_environment(entry, {"PATH": "/bin"})["GC_KERNEL_PATH"] == "/registry"


def test_a_container_and_modules_bring_their_own_variables(places):
    (places / "habanalabs.sh").write_text(PROFILE)
    for named in ({"container": "x.sif"}, {"modules": ["m"]}):
        assert "GC_KERNEL_PATH" not in launch_environment(make_job(kind="hpu", **named), {})


# In the process of a rank


def test_optimum_habana_asks_the_pip_of_the_jobs_interpreter(tmp_path, monkeypatch):
    wrong = tmp_path / "driver/pip"
    wrong.parent.mkdir()
    wrong.write_text("#!/bin/sh\necho the wrong one\n")
    wrong.chmod(0o755)
    monkeypatch.setenv("PATH", f"{wrong.parent}:/usr/bin:/bin")
    monkeypatch.setenv("PT_HPU_LAZY_MODE", "")
    run = tmp_path / "it's a run"
    run.mkdir()
    hpu.DeviceAdapter.prepare_process(JOB, run)
    said = subprocess.run(["sh", "-c", "pip --version"], capture_output=True, text=True, check=True)
    assert str(Path(sys.prefix)) in said.stdout
    assert [file.name for file in run.glob("bin.*/*")] == ["pip"]


@pytest.mark.parametrize("error", ["AssertionError('Stock')", "AttributeError('startswith')"])
def test_a_stock_torch_is_a_fault_of_the_machine(tmp_path, monkeypatch, error):
    """The bridge asserts, or reads the local version that PyPI's torch does not have."""
    folder = tmp_path / "habana_frameworks/torch"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text(f"raise {error}\n")
    (tmp_path / "optimum/habana").mkdir(parents=True)
    monkeypatch.syspath_prepend(str(tmp_path))
    before = set(sys.modules)
    with pytest.raises(DeviceError, match="a stock build; Gaudi needs Intel's torch") as caught:
        hpu.DeviceAdapter(0, 1)
    for name in set(sys.modules) - before:
        if name.partition(".")[0] in ("habana_frameworks", "optimum"):
            del sys.modules[name]
    assert "\n" not in str(caught.value)
    assert msgspec.structs.asdict(JOB)["kind"] == "hpu"
