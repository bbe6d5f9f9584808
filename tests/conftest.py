"""Distributes the tests over xdist workers. `make test` starts three: one of them mostly waits for
Slurm, and two compute.

Training jobs must not run at the same time on one host. So each worker has its own PID namespace
(namespaces.py), in which it sees only its own jobs. Where namespaces are not permitted, one worker
runs all tests that train.
"""

import functools
import gc
import importlib
import os
import re
import sys
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from namespaces import isolated_python
from session import modules_digested_once, own_files, pytest_runtest_setup  # noqa: F401

# No test judges how fast this machine is.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")

TOGETHER = (
    "slurm",
    "gaudi",
    "workflow/test_small_studies.py",
    "workflow/test_faults.py",
    "workflow/test_quality_learned.py",
    "workflow/test_profiles.py",
    "workflow",
    "unit/jobs/test_combinations.py",
    "unit/jobs/test_strategies.py",
    "unit/jobs/test_two_ranks.py",
    "unit/jobs/test_rounds.py",
    "unit/jobs/test_train_settings.py",
    "unit/jobs/test_trainer.py",
    "extras/loaders/tests/test_libraries_train.py",
    "extras/loaders/tests/test_loaders_study.py",
    "unit/cli/test_commands.py",
    "unit/cli/test_archive.py",
    "unit/report/test_page_browser.py",
    "unit/project/test_goldens.py",
)
"""Files and folders whose tests share fixtures and so stay in one worker; the slowest first. Every
other test is a unit of its own."""
ORDER = (
    *("slurm", "slurm/test_slurm_time_limit.py", *TOGETHER[1:]),
    *("unit/cli/test_selftest.py", "unit/jobs", "extras/loaders", "unit/devices"),
    *("unit/loading", "unit/models"),
)
"""The last test of Slurm waits for a job that takes four minutes and began with the first. Tests of
milliseconds come last."""
MEMORY = (
    "unit/config/test_published_numbers.py",
    "unit/config/test_config_memory.py",
    "unit/models/test_memory_model.py",
)
"""Files whose tests trace the memory of the same large models, which a process does once: they are
one unit too."""
TRAIN = (
    *("slurm", "gaudi", "workflow", "extras/loaders"),
    *("unit/devices", "unit/jobs", "unit/cli/test_selftest.py"),
)
"""Files and folders whose tests start training jobs."""
DO_NOT = ("test_plans.py", "test_profiles.py")
"""Files in these folders that only plan."""


@functools.cache
def within(file: str, places: tuple[str, ...]) -> str:
    """The narrowest place (a path under tests/, or one of extras/) that contains the file; "" if
    there is none."""
    path = PurePosixPath(file.removeprefix("tests/"))
    found = [place for place in places if path.is_relative_to(place)]
    return max(found, key=len, default="")


def share_of(nodeid: str, *, isolated: bool) -> str:
    """The unit of work that a test belongs to; xdist runs a unit in one worker."""
    file = nodeid.partition("::")[0]
    if not isolated and within(file, TRAIN) and not file.endswith(DO_NOT):
        return "training"
    if within(file, MEMORY):
        return "memory"
    return within(file, TOGETHER) or nodeid


def pytest_configure(config: pytest.Config) -> None:
    """Keep bytecode (hundreds of processes would compile the package again); find namespaces."""
    sys.dont_write_bytecode = False
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    # Test workers share the cores: a thread that waits for another must not keep it from running.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    config.isolated, config.together = "", ""
    if config.getoption("numprocesses", None):
        config.isolated, config.together = isolated_python()
    else:
        gc.disable()  # the collector would look at modules and tests again and again


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """With `-k test_name`, skip importing files that do not contain the name."""
    name = config.getoption("keyword").lower()
    if not re.fullmatch(r"test_\w+", name) or collection_path.suffix != ".py":
        return None
    text = f"{collection_path}\n{collection_path.read_text(encoding='utf-8')}"
    return True if name not in text.lower() else None


def pytest_report_header(config: pytest.Config) -> str | None:
    """Say why only one worker trains."""
    if config.together:
        return f"only one worker runs training jobs: no PID namespaces ({config.together})"
    return None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Start the slowest units first, so that the workers end at about the same time."""
    order = {place: number for number, place in enumerate(ORDER)}
    items.sort(key=lambda item: order.get(within(item.nodeid.partition("::")[0], ORDER), 99))


def pytest_collection_finish() -> None:
    """Prepare torch, and leave the libraries out of garbage collection: training collects often,
    and each collection would visit them."""
    if "torch" in sys.modules:
        importlib.import_module("warm.half_products")
    gc.freeze()
    gc.enable()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes(config: pytest.Config, specs: list[Any]) -> None:
    """Start the workers in namespaces."""
    for spec in specs:
        spec.python = config.isolated or None


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Schedule whole units (xdist 3.8.0 does not see its own group marks under pytest 9.2)."""
    from xdist.scheduler import LoadScopeScheduling

    class Shares(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return share_of(nodeid, isolated=bool(config.isolated))

    config.option.loadscopereorder = False
    return Shares(config, log)
