"""The locks, the conda files and what is installed say the same."""

import ast
import re
import runpy
import sys
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from feedrate.devices import doctor

ROOT = Path(__file__).resolve().parents[3]
gaudi = runpy.run_path(str(ROOT / "requirements/gaudi.py"))


def pins(name):
    lines = (ROOT / "requirements" / name).read_text().splitlines()
    return dict(line.split("==") for line in lines if line and not line.startswith("#"))


def conda_pins(path):
    (pip,) = [
        d["pip"] for d in yaml.safe_load(path.read_text())["dependencies"] if isinstance(d, dict)
    ]
    return dict(pin.split("==") for pin in pip if "==" in pin)


def canonical(name):
    return re.sub(r"[-_.]+", "-", name).lower()


def test_conda_environment_holds_the_lock():
    assert conda_pins(ROOT / "environment.yml") == pins("run.lock")


@pytest.mark.parametrize("kind", ["cpu", "cuda", "report"])
def test_job_environments_pin_as_the_lock_does(kind):
    found = conda_pins(ROOT / f"envs/{kind}.yaml")
    assert found
    decoder = found.pop("torchvision", None)
    for only_gpus in ("torchao", "nvidia-ml-py"):
        assert (found.pop(only_gpus, None) is not None) == (kind == "cuda")
    assert found.items() <= pins("run.lock").items()
    # torchvision decodes on the GPU, and goes with one torch: minor version 28 with 13.
    major, minor, *_ = (int(n) for n in found.get("torch", "0.0").split("."))
    assert decoder == (f"{major - 2}.{minor + 15}.0" if kind == "cuda" else None)


@pytest.mark.parametrize(
    ("part", "tried"), [("run", doctor.TRIED), ("gaudi", doctor.TRIED_ON_GAUDI)]
)
def test_installed_releases_are_among_those_that_were_tried(part, tried):
    """The bounds of the requirements are those that doctor checks, and the lock is within."""
    lines = (ROOT / f"requirements/{part}.in").read_text().splitlines()
    locked = {canonical(name): version for name, version in pins(f"{part}.lock").items()}
    for name, (oldest, newest) in tried.items():
        (line,) = [line for line in lines if re.match(rf"{name}\b", line)]
        (locked_release,) = re.findall(r"^\d+\.\d+", locked[name])
        spans = [[int(n) for n in text.split(".")] for text in (oldest, locked_release, newest)]
        assert spans == sorted(spans)
        major, minor = newest.split(".")
        if "==" not in line:
            assert line == f"{name}>={oldest},<{major}.{int(minor) + 1}"


OF_VENDORS = {"habana_frameworks", "pyhlml"}
"""Modules that come with a device's own software."""


def test_every_imported_package_is_declared():
    """Also one that today comes with another package."""
    top = {"feedrate", "snakemake_logger_plugin_feedrate", *sys.stdlib_module_names, *OF_VENDORS}
    imported = set()
    for file in (ROOT / "workflow").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Import):
                imported |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and not node.level:
                imported |= {f"{node.module}.{alias.name}" for alias in node.names}
    texts = [
        (ROOT / "requirements" / name).read_text() for name in ("run.in", "gaudi.in", "cuda.lock")
    ]
    declared = {canonical(name) for text in texts for name in re.findall(r"^[\w-]+", text, re.M)}
    known = metadata.packages_distributions()
    modules = {
        "google.protobuf": ["protobuf"],
        "pynvml": ["nvidia-ml-py"],
        "optimum": ["optimum-habana"],
    }
    missing = set()
    for name in imported:
        first = name.split(".")[0]
        short = next((module for module in modules if f"{name}.".startswith(f"{module}.")), first)
        owners = modules.get(short) or known.get(short) or [short]
        if first not in top and declared.isdisjoint(map(canonical, owners)):
            missing.add(short)
    assert not missing


def test_the_gaudi_environment_pins_as_its_lock_does_and_brings_no_torch_of_its_own():
    found = conda_pins(ROOT / "envs/gaudi.yaml")
    assert found.items() <= pins("gaudi.lock").items()
    assert {"msgspec", "psutil", "transformers"} <= found.keys()
    for needs_torch in ("torch", "accelerate", "optimum-habana"):
        assert needs_torch not in found


def test_what_make_adds_for_gpus_is_what_the_conda_environment_has():
    only = conda_pins(ROOT / "envs/cuda.yaml").keys() - pins("run.lock").keys()
    assert pins("cuda.lock").keys() == only


# What is added to Intel's environment on Gaudi

LOCK = ["torch==2.13.0", "numpy==2.4.6", "transformers==4.55.4", "huggingface_hub==0.36.2", "a==1"]


@pytest.mark.parametrize(
    ("present", "wanted"),
    [
        ({}, LOCK[1:]),
        ({"torch": "2.9.0+git1", "numpy": "1.26.4", "a": "0.9"}, LOCK[2:4]),
        (
            {"transformers": "4.49.0", "huggingface-hub": "0.36.2", "numpy": "1", "a": "2"},
            LOCK[2:3],
        ),
        ({"transformers": "4.55.4", "huggingface-hub": "0.36.2", "numpy": "1", "a": "2"}, []),
    ],
)
def test_intels_packages_are_never_replaced(present, wanted):
    assert gaudi["missing"](LOCK, present) == wanted


def test_pillow_is_not_installed_over_intels_faster_one():
    assert gaudi["missing"](["pillow==13.0.0"], {}) == ["pillow==13.0.0"]
    assert gaudi["missing"](["pillow==13.0.0"], {"pillow-simd": "9.5.0.post20+habana"}) == []


def test_the_installer_leaves_dependencies_and_what_is_installed_alone(monkeypatch):
    present = {"habana-torch-plugin": "1.24.0", "torch": "2.9.0+git1", "numpy": "1.26.4"}
    monkeypatch.setitem(gaudi["main"].__globals__, "installed", lambda: present)
    ran = []

    def run(command, **_options):
        ran.append(command)
        place = command[command.index("--constraint") + 1]
        ran.append(Path(place).read_text().splitlines())
        return SimpleNamespace(returncode=0)

    monkeypatch.setattr(gaudi["subprocess"], "run", run)
    assert gaudi["main"]([]) == 0
    command, constraints = ran
    assert "--no-deps" in command
    assert f"optimum-habana=={pins('gaudi.lock')['optimum-habana']}" in command
    assert not [word for word in command if word.startswith(("torch==", "numpy=="))]
    assert "numpy==1.26.4" in constraints
    assert not [line for line in constraints if line.startswith("torch==")], "no index has it"


def test_the_installer_refuses_an_interpreter_without_intels_packages():
    assert "habana-torch-plugin" in gaudi["main"](["--dry-run"])


def test_every_library_that_must_match_is_locked():
    assert {*gaudi["OURS"]} <= {canonical(name) for name in pins("gaudi.lock")}


def test_both_environments_train_with_the_same_torch():
    assert pins("gaudi.lock")["torch"] == pins("run.lock")["torch"]


@pytest.mark.parametrize("name", ["run", "dev", "gaudi"])
def test_every_named_requirement_is_locked(name):
    wanted = (ROOT / f"requirements/{name}.in").read_text().splitlines()
    locked = {canonical(pin) for pin in pins(f"{name}.lock")}
    for line in wanted:
        if line and not line.startswith("#"):
            assert canonical(re.split("[=<>]", line)[0]) in locked


def test_what_is_installed_is_the_lock():
    for name, version in pins("run.lock").items():
        assert metadata.version(name).split("+")[0] == version, name


def test_torch_is_pinned_and_torchvision_is_absent():
    assert pins("run.lock")["torch"] == "2.13.0"
    assert "torchvision" not in pins("run.lock")
    with pytest.raises(metadata.PackageNotFoundError):
        metadata.version("torchvision")
