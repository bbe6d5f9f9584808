"""The locks, the conda files and what is installed say the same."""

import re
from importlib import metadata
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[3]


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


def test_the_gaudi_environment_pins_as_its_lock_does_and_leaves_torch_to_the_vendor():
    found = conda_pins(ROOT / "envs/gaudi.yaml")
    assert "optimum-habana" in found
    assert "torch" not in found
    assert found.items() <= pins("gaudi.lock").items()


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
