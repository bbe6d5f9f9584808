"""Fixtures: a real Slurm, started once per session, and projects that submit their jobs to it."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster import Cluster, NoSlurmHere, install
from mini_project import Project, make_project


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """The cluster of this machine. If one is already running, it is used and left running."""
    try:
        install()
    except NoSlurmHere as reason:
        pytest.skip(str(reason))
    found = Cluster.running()
    cluster = found or Cluster(tmp_path_factory.mktemp("slurm"))
    cluster.start()
    yield cluster
    if not found:
        cluster.stop()


@pytest.fixture
def project(cluster: Cluster, tmp_path: Path) -> Iterator[Project]:
    """A new project with the small study; its remaining jobs are cancelled at the end."""
    yield make_project(tmp_path)
    cluster.cancel(tmp_path)
