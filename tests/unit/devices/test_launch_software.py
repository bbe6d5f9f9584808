"""The software of a device: what a command is wrapped in, tried with a real bash.

`module` is a function of a login shell's profile here, and `apptainer` a program that runs what
follows its image; both write down what they were given.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from job_specs import make_job

from feedrate.devices.base import DeviceError
from feedrate.devices.launch import (
    SOURCES,
    interpreter,
    launch_command,
    launch_environment,
    prepare,
    wrap,
)

PROFILE = """\
PATH=/usr/local/bin:/usr/bin:/bin
export OMP_NUM_THREADS=77
module() {{
    echo "module $*" >> {folder}/told
    [ "$2" != broken ] || {{ echo "Unable to locate a modulefile for 'broken'" >&2; return 1; }}
    export PYTHONPATH=/from/module
}}
"""
APPTAINER = """\
#!/bin/sh
echo "apptainer $*" >> {folder}/told
[ "$1" = exec ] || exit 255
shift
while [ "${{1#--}}" != "$1" ]; do shift; done
[ -z "$BAD_IMAGE" ] || {{ echo "FATAL: could not open image" >&2; exit 255; }}
shift
[ -z "$PYTHONPATH" ] || {{ echo "the image's own PYTHONPATH is hidden" >&2; exit 9; }}
OMP_NUM_THREADS=66 PYTHONPATH=/from/image exec "$@"
"""
TELL = "import json, os; print(json.dumps(dict(os.environ)))"


@pytest.fixture
def site(tmp_path, monkeypatch):
    """A home whose login shells have modules, a PATH with apptainer, and a project's root."""
    home, programs, root = (tmp_path / name for name in ("home", "bin", "ro ot"))
    for folder in (home, programs, root):
        folder.mkdir()
    (home / ".bash_profile").write_text(PROFILE.format(folder=tmp_path))
    (programs / "apptainer").write_text(APPTAINER.format(folder=tmp_path))
    (programs / "apptainer").chmod(0o755)
    (root / "vendor.sif").touch()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", "/from/shell")
    monkeypatch.chdir(root)
    return tmp_path


def told(site: Path) -> list[str]:
    return (site / "told").read_text().splitlines()


def variables(job) -> dict[str, str]:
    """The environment of a process of `job`, which really runs."""
    answer = subprocess.run(
        wrap(job, [sys.executable, "-c", TELL]),
        env=launch_environment(job, os.environ),
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return json.loads(answer.stdout)


VALUE = "a b $HOME 'c' \"d\" `e` \\ f"


@pytest.mark.parametrize("software", [
    {"modules": ["gaudi/1.24", "it's a name"]},
    {"container": "vendor.sif"},
    {"modules": ["apptainer"], "container": "vendor.sif"},
])  # fmt: skip
def test_what_a_job_needs_is_set_behind_modules_and_image(site, software):
    job = make_job("torchrun", 2, **software, environment={"MY_FLAGS": VALUE, "EMPTY": ""})
    found = variables(job)
    assert found["MY_FLAGS"] == VALUE
    assert found["EMPTY"] == ""
    assert found["OMP_NUM_THREADS"] == launch_environment(job, {})["OMP_NUM_THREADS"]
    last = "/from/image" if "container" in software else "/from/module"
    assert found["PYTHONPATH"] == f"{SOURCES}:{last}"


def test_modules_get_their_names_as_they_are(site):
    variables(make_job(modules=["gaudi/1.24", "it's a name"]))
    assert told(site) == ["module load gaudi/1.24 it's a name"]


def test_programs_that_were_on_path_before_a_profile_are_still_found(site):
    path = variables(make_job(modules=["any"]))["PATH"].split(os.pathsep)
    assert path[0] == "/usr/local/bin"
    assert str(site / "bin") in path


def test_no_value_is_seen_in_a_list_of_processes():
    job = make_job("torchrun", 2, modules=["m"], container="docker://x", environment={"K": "hush"})
    assert "hush" not in "".join(launch_command(job, ["module"]))


def test_a_container_reaches_project_data_and_package(site, tmp_path):
    elsewhere = tmp_path / 'scratch/workers=0,decode="host"'
    elsewhere.mkdir(parents=True)
    (tmp_path / "weights").mkdir()
    job = make_job(kind="cuda", container="vendor.sif", checkpoint=str(tmp_path / "weights"))
    command = wrap(job, ["x"], [elsewhere, Path("inside")])
    mounts = [part for part in command if part.startswith("--mount=")]
    quoted = str(elsewhere).replace('"', '""')
    assert mounts == [
        f'--mount=type=bind,"src={folder}","dst={folder}"'
        for folder in (Path.cwd(), SOURCES, tmp_path / "weights", quoted)
    ]
    assert command[:3] == ["apptainer", "exec", "--nv"]
    assert str(Path.cwd() / "vendor.sif") in command
    assert "--nv" not in wrap(make_job(kind="hpu", container="vendor.sif"), ["x"])
    assert "docker://nvcr/x" in wrap(make_job(container="docker://nvcr/x"), ["x"])


def test_the_order_is_modules_then_container_then_launcher(site):
    job = make_job("torchrun", 2, kind="hpu", modules=["m"], container="vendor.sif")
    command = launch_command(job, ["feedrate", "worker"])
    order = [command.index(part) for part in ("bash", "apptainer", "sh", "python3")]
    assert order == sorted(order)
    assert command[command.index("python3") + 2] == "torch.distributed.run"


@pytest.mark.parametrize(
    ("software", "expected"),
    [
        ({}, sys.executable),
        ({"container": "x.sif"}, "python3"),
        ({"python": "python3.12"}, "python3.12"),
        ({"python": "/opt/v/bin/python"}, "/opt/v/bin/python"),
    ],
)
def test_the_interpreter(software, expected):
    assert interpreter(make_job(**software).software) == expected


def test_a_relative_interpreter_starts_at_the_root_and_keeps_its_link(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".venv/bin").mkdir(parents=True)
    (tmp_path / ".venv/bin/python").symlink_to(sys.executable)
    found = interpreter(make_job(python=".venv/bin/python").software)
    assert found == f"{tmp_path}/.venv/bin/python"


def test_an_interpreter_of_its_own_finds_the_package_and_ours_needs_no_help():
    other = launch_environment(make_job(python="/x/python"), {"PYTHONPATH": "/a"})
    assert other["PYTHONPATH"] == f"{SOURCES}:/a"
    assert launch_environment(make_job(python="/x/python"), {})["PYTHONPATH"] == str(SOURCES)
    assert "PYTHONPATH" not in launch_environment(make_job(), {})


def reason(job) -> str:
    """The sentence that ends a job whose software is not there."""
    with pytest.raises(DeviceError) as caught:
        prepare(job, ["module"], [], os.environ)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_an_interpreter_that_is_not_there(site):
    assert reason(make_job(python="no/python")).endswith(f"no program {Path.cwd()}/no/python")
    wrapped = make_job(modules=["m"], python="no-such-python")
    assert reason(wrapped) == "software.python: there is no program no-such-python"


def test_an_interpreter_that_lacks_what_the_worker_needs(site):
    bare = site / "bare"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -S -I "$@"\n')
    bare.chmod(0o755)
    assert "cannot run the training job: ModuleNotFoundError" in reason(make_job(python=str(bare)))


def test_an_image_that_is_not_there(site):
    assert reason(make_job(container="no.sif")).endswith(f"there is no {Path.cwd()}/no.sif")


def test_an_image_that_cannot_be_entered(site, monkeypatch):
    monkeypatch.setenv("BAD_IMAGE", "1")
    job = make_job(container="vendor.sif")
    assert reason(job).endswith("(exit code 255): FATAL: could not open image")


def test_no_apptainer(site, monkeypatch):
    (site / "bin/apptainer").unlink()
    assert "this needs apptainer" in reason(make_job(container="vendor.sif"))
    assert "this needs apptainer" in reason(make_job(modules=["m"], container="vendor.sif"))


def test_no_modules(site):
    assert "failed: Unable to locate a modulefile" in reason(make_job(modules=["broken"]))
    (site / "home/.bash_profile").write_text("unset -f module; unalias module 2>/dev/null\n")
    assert "no command `module`" in reason(make_job(modules=["m"]))


def test_no_mpirun(site, monkeypatch):
    monkeypatch.setenv("PATH", str(site / "bin"))
    assert reason(make_job("mpirun", 2)).startswith("launcher: mpirun is not installed")
