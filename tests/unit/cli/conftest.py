"""The project's own configuration."""

from pathlib import Path

import pytest
import yaml

from feedrate.config.project import load_project

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="session")
def root():
    """The project's folder."""
    return ROOT


@pytest.fixture(scope="session")
def project():
    """As it stands in config/."""
    return load_project(ROOT, yaml.safe_load((ROOT / "config/config.yaml").read_text()))
