"""Copies of the project with a small study: fresh, and once run."""

import shutil
from pathlib import Path

import pytest
from mini_project import Project, know_code, make_project


@pytest.fixture(scope="session")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A project with its dataset, prepared."""
    project = make_project(tmp_path_factory.mktemp("prepared"))
    made = project.call("snakemake", "--profile", "profiles/local", "--until", "preprocess_dataset")
    assert made.returncode == 0, made.stdout
    return project


@pytest.fixture
def ready(prepared: Project, tmp_path: Path) -> Project:
    """A copy of it."""
    return copy_of(prepared, tmp_path / "ready")


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """A fresh project in which nothing has been run."""
    return make_project(tmp_path)


@pytest.fixture(scope="session")
def finished(prepared: Project, tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A project whose small study has been run; tests may only read it or plan in a copy."""
    project = copy_of(prepared, tmp_path_factory.mktemp("finished") / "project")
    done = project.run()
    assert done.returncode == 0, done.stdout
    return project


@pytest.fixture
def edited(finished: Project, tmp_path: Path) -> Project:
    """A copy of the finished project, to be edited."""
    return copy_of(finished, tmp_path / "copy")


def copy_of(project: Project, root: Path) -> Project:
    return know_code(Project(shutil.copytree(project.root, root, symlinks=True)))
