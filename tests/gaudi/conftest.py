"""The Gaudi environment, and jobs in it that several tests look at."""

from pathlib import Path

import pytest
from gaudi_software import PYTHON, Job, make_prepared, make_spec

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
    """A job with all that a job can do: bf16, accumulation, a worker, evaluation, checkpoints."""
    spec = make_spec(
        train={"precision": "bf16", "gradient_accumulation": 2},
        loader={"workers": 1},
        evaluate=True,
        save_checkpoints=True,
    )
    return Job(spec, prepared, tmp_path_factory.mktemp("full") / "rep1")
