"""A machine without accelerators, and the project whose devices are looked for on it."""

from pathlib import Path

import pytest

from feedrate.config.project import Project, load_project
from feedrate.config.values import read_yaml
from feedrate.devices import host

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def project() -> Project:
    """The project's own, on the generated dataset."""
    return load_project(ROOT, read_yaml(ROOT / "config/config.yaml"))


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """A machine without accelerators and tools; its root folder."""
    for name in ("bin", "dev", "proc", "sys", "site"):
        (tmp_path / name).mkdir()
    monkeypatch.setenv("PATH", f"{tmp_path}/bin")
    monkeypatch.chdir(tmp_path)
    for name in ("DEV", "PROC", "SYS"):
        monkeypatch.setattr(host, name, tmp_path / name.lower())
    for variable in ("CUDA_VISIBLE_DEVICES", "HABANA_VISIBLE_MODULES", "SLURM_JOB_ID"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}/site")
    return tmp_path
