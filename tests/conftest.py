"""How the tests are shared out among two processes: those that train stay one after the other."""

from pathlib import PurePosixPath
from typing import Any

import pytest

TRAIN = (
    "gaudi",
    "slurm",
    "workflow",
    "unit/devices",
    "unit/jobs",
    "unit/tuning",
)
"""Folders whose tests start training jobs: a run beside which another trains does not count."""
DO_NOT = ("test_plans.py", "test_profiles.py")
"""Files among them that only plan."""


def share_of(nodeid: str) -> str:
    """Tests of one share stay in one process: all that train, and each other test by itself."""
    file = PurePosixPath(nodeid.partition("::")[0])
    trains = any(file.is_relative_to(f"tests/{folder}") for folder in TRAIN)
    return "training" if trains and file.name not in DO_NOT else nodeid


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """The order of `make test`, which starts two processes (xdist's own groups go by marks, which
    version 3.8.0 does not see under pytest 9.2)."""
    from xdist.scheduler import LoadScopeScheduling

    class OneTrains(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return share_of(nodeid)

    return OneTrains(config, log)
