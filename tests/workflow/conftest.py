"""Copies of the project with a small study: fresh, and once run."""

import shutil
from pathlib import Path

import pytest
from mini_project import Project, know_code, make_project


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """A fresh project in which nothing has been run."""
    return make_project(tmp_path)


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A project whose small study has been run; tests may only read it or plan in a copy."""
    project = make_project(tmp_path_factory.mktemp("finished"), cold=True)
    done = project.run()
    assert done.returncode == 0, done.stdout
    return project


@pytest.fixture
def edited(finished: Project, tmp_path: Path) -> Project:
    """A copy of the finished project, to be edited."""
    shutil.copytree(finished.root, tmp_path / "copy", symlinks=True)
    return know_code(Project(tmp_path / "copy"))
