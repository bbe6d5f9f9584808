"""The torch that set-up installs, by NVIDIA driver and GPU, and what it adds for GPUs."""

import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
SCRIPT = ROOT / "requirements/torch_index.py"
found_there = runpy.run_path(str(SCRIPT))
BUILDS, advice, build_for, version = (
    found_there[name] for name in ("BUILDS", "advice", "build_for", "version")
)


@pytest.mark.parametrize(
    ("driver", "gpu", "build"),
    [
        ("580.65.06", (9, 0), "cu130"),
        ("595.10", (12, 0), "cu130"),
        ("570.124.06", (9, 0), "cu126"),
        ("525.60.13", (8, 0), "cu126"),
        ("525.60.11", (8, 0), None),
        ("470.256.02", (7, 0), None),
        ("580.65.06", (7, 0), "cu126"),  # V100: CUDA 13 has no code for it
        ("570.124.06", (10, 0), None),  # B200: CUDA 12.6 has no code for it
    ],
)
def test_driver_and_gpu_choose_the_build(driver, gpu, build):
    found = build_for(version(driver), [gpu])
    assert (found and found.name) == build
    said = advice(driver, [gpu])
    assert (said == "") == (build == BUILDS[0].name)
    if build is None:
        assert "update the driver" in said


def answers(tmp_path: Path, script: str) -> subprocess.CompletedProcess[str]:
    """What set-up prints where nvidia-smi is this script; Python has no packages."""
    program = tmp_path / "nvidia-smi"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return subprocess.run(
        [sys.executable, "-I", "-S", str(SCRIPT)],
        env={"PATH": f"{tmp_path}:/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_new_driver_gets_the_default_index_without_a_word(tmp_path):
    done = answers(tmp_path, "echo 580.65.06, 9.0; echo 580.65.06, 9.0")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_an_older_driver_gets_its_index_and_one_sentence(tmp_path):
    done = answers(tmp_path, "echo 550.54.15, 9.0")
    assert (done.returncode, done.stdout.strip()) == (0, BUILDS[1].url)
    assert done.stderr.count("\n") == 1
    assert "driver 580, and this one is 550.54.15" in done.stderr
    assert BUILDS[1].url in done.stderr


def test_a_tool_that_warns_has_answered_and_its_warning_is_shown(tmp_path):
    done = answers(tmp_path, "echo 550.54.15, 9.0; echo WARNING: infoROM is corrupted; exit 14")
    assert (done.returncode, done.stdout.strip()) == (0, BUILDS[1].url)
    assert "nvidia-smi ended with 14: WARNING: infoROM is corrupted" in done.stderr


def test_a_driver_that_is_too_old_for_all_stops_set_up(tmp_path):
    done = answers(tmp_path, "echo 470.82.01, 8.0")
    assert done.returncode == 1
    assert done.stdout == ""


@pytest.mark.parametrize("script", ["exit 9", "echo no devices; exit 6", ""])
def test_without_a_driver_that_answers_the_default_index_is_used(tmp_path, script):
    done = answers(tmp_path, script)
    assert (done.returncode, done.stdout) == (0, "")


def test_a_gpu_whose_driver_does_not_know_its_capability(tmp_path):
    done = answers(tmp_path, "echo '535.104.05, [N/A]'")
    assert done.stdout.strip() == BUILDS[1].url


def commands(target: str, tmp_path: Path, *arguments: str, nvidia: bool) -> str:
    """What make would do for a target in a new clone, with or without nvidia-smi."""
    if nvidia:
        (tmp_path / "nvidia-smi").write_text("#!/bin/sh\necho 550.54.15, 9.0\n")
        (tmp_path / "nvidia-smi").chmod(0o755)
    done = subprocess.run(
        ["make", "--dry-run", "VENV=.no-venv", f"PYTHON={sys.executable}", target, *arguments],
        cwd=ROOT,
        env={"PATH": f"{tmp_path}:{os.defpath}"},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


@pytest.mark.parametrize("target", ["setup", "run", "plan", "doctor"])
def test_set_up_adds_what_gpus_need_where_there_are_some(target, tmp_path):
    adds = "requirements/cuda.lock"
    assert adds not in commands(target, tmp_path, nvidia=False)
    assert adds in commands(target, tmp_path, "GPU_DRIVER=570.1", nvidia=False)
    done = commands(target, tmp_path, nvidia=True)
    assert adds in done
    first = done.index(SCRIPT.name)
    assert first < done.index("pip install"), "the driver is asked before anything is installed"


def test_an_index_of_the_users_own_is_used_without_asking(tmp_path):
    done = commands("setup", tmp_path, "TORCH_INDEX=https://mirror/simple", nvidia=True)
    assert done.count('index="https://mirror/simple"') == 2


@pytest.mark.parametrize(("cuda", "installed"), [("13.0", True), ("", False)])
def test_a_build_for_cpus_is_named_until_it_is_replaced(cuda, installed, tmp_path):
    for program, script in {"python": f"echo {cuda}", "pip": "exit 0"}.items():
        path = tmp_path / "venv/bin" / program
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
    (tmp_path / "venv/.ready-run").touch()
    done = subprocess.run(
        ["make", f"VENV={tmp_path}/venv", "GPU_DRIVER=580.65.06", "setup"],
        cwd=ROOT,
        env={"PATH": os.defpath},
        capture_output=True,
        text=True,
        check=True,
    )
    assert (tmp_path / "venv/.ready-cuda").exists() is installed
    assert ("is a build for CPUs" in done.stderr) is not installed
