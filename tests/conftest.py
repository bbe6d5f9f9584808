"""How the tests are shared out among two processes: those that train stay one after the other."""

from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent

TRAIN = (
    "gaudi",
    "slurm",
    "workflow",
    "unit/devices",
    "unit/infer",
    "unit/loading",
    "unit/quality",
    "unit/train",
    "unit/tuning",
)
"""Folders whose tests start training jobs: a run beside which another trains does not count."""
DO_NOT = ("test_plans.py", "test_profiles.py")
"""Files among them that only plan."""


def pytest_itemcollected(item: pytest.Item) -> None:
    """Give all tests that train to one process, where `make test` starts two."""
    trains = any(item.path.is_relative_to(HERE / folder) for folder in TRAIN)
    if trains and item.path.name not in DO_NOT:
        item.add_marker(pytest.mark.xdist_group("training"))
