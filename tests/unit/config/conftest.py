"""A copy of the project's own configuration, to be edited and read again."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from feedrate.config.errors import ConfigError
from feedrate.config.project import Project, load_project
from feedrate.config.values import read_yaml

ROOT = Path(__file__).resolve().parents[3]


class ConfigCopy:
    """A project root with a copy of config/, and the project's captions."""

    def __init__(self, root: Path) -> None:
        self.root = root
        shutil.copytree(ROOT / "config", root / "config")
        (root / "report").symlink_to(ROOT / "report")

    def edit(self, file: str, *changes: tuple[str, str]) -> "ConfigCopy":
        """Replace the first occurrence of each text, which must be there."""
        path = self.root / "config" / file
        text = path.read_text(encoding="utf-8")
        for old, new in changes:
            assert old in text, f"{file} has no {old!r}"
            text = text.replace(old, new, 1)
        path.write_text(text, encoding="utf-8")
        return self

    def write(self, file: str, text: str) -> "ConfigCopy":
        (self.root / "config" / file).write_text(text, encoding="utf-8")
        return self

    def load(self, **config: Any) -> Project:
        """Read it, with these keys laid over config.yaml."""
        values = read_yaml(self.root / "config/config.yaml", "config/config.yaml")
        return load_project(self.root, values | config)

    def error(self, **config: Any) -> str:
        """The message that reading it ends in."""
        with pytest.raises(ConfigError) as caught:
            self.load(**config)
        return str(caught.value)


@pytest.fixture
def copy(tmp_path):
    return ConfigCopy(tmp_path)


@pytest.fixture(scope="session")
def project():
    """The project's own configuration."""
    return load_project(ROOT, read_yaml(ROOT / "config/config.yaml"))


@pytest.fixture
def root():
    return ROOT
