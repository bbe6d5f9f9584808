"""The Gaudi environment, and jobs in it that several tests look at."""

import shutil
from pathlib import Path

import pytest
from gaudi_software import FULL, PYTHON, WITH_MEDIA, Job, make_prepared, make_spec

from feedrate.config.workflow import GeneratedExamples
from feedrate.data.winoground import fetch_winoground

HERE = Path(__file__).resolve().parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Without the environment there is nothing to test."""
    if not PYTHON.exists():
        why = "no .venv-gaudi: `make test` makes it (optimum-habana in an environment of its own)"
        for item in items:
            if item.path.is_relative_to(HERE):
                item.add_marker(pytest.mark.skip(reason=why))


@pytest.fixture(scope="session")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A prepared dataset of 24 rows to train on; tests only read it."""
    return make_prepared(tmp_path_factory.mktemp("gaudi-data") / "prepared")


@pytest.fixture(scope="session")
def full_job(prepared: Path, tmp_path_factory: pytest.TempPathFactory) -> Job:
    """A full job that decodes on the host, and that is scored on Winoground."""
    examples = tmp_path_factory.mktemp("winoground") / "examples.json"
    fetch_winoground("generated", GeneratedExamples(examples=2), examples)
    spec = make_spec(**FULL, loader={"workers": 1})
    out = tmp_path_factory.mktemp("full") / "rep1"
    return Job(spec, prepared, out, "--winoground", str(examples))


@pytest.fixture(scope="session")
def decoded(prepared: Path, tmp_path_factory: pytest.TempPathFactory) -> Job:
    """A full job that decodes on the device."""
    loader = {"decode": "device", "workers": 1}
    spec = make_spec(**FULL, loader=loader, environment={"PYTHONPATH": WITH_MEDIA})
    return Job(spec, prepared, tmp_path_factory.mktemp("decoded") / "rep1")


@pytest.fixture(scope="session")
def two_ranks(prepared: Path, tmp_path_factory: pytest.TempPathFactory) -> Job:
    """A job of two ranks under mpirun that decodes on the devices."""
    if shutil.which("mpirun") is None:
        pytest.skip("no mpirun: Open MPI is not installed (package openmpi-bin)")
    spec = make_spec(
        count=2,
        launcher="mpirun",
        loader={"decode": "device", "workers": 2},
        environment={"PYTHONPATH": WITH_MEDIA},
    )
    return Job(spec, prepared, tmp_path_factory.mktemp("two") / "rep1")
