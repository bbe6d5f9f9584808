"""Settings of the loader that do not go together are told before anything starts."""

import pytest

from feedrate.config.errors import ConfigError
from feedrate.config.plan import make_plan

STUDY = "config/studies/bridgetower-dataloading.yaml"


def planned(copy, loader):
    copy.edit("studies/bridgetower-dataloading.yaml", ("loader: {", f"loader: {{{loader}, "))
    return make_plan(copy.load(studies=["bridgetower-dataloading"]))


def test_several_threads_need_a_worker_that_is_not_forked(copy):
    with pytest.raises(ConfigError) as refusal:
        planned(copy, "threads_per_worker: 2")
    (line,) = str(refusal.value).splitlines()
    assert line.startswith(f"{STUDY}: cell workers=1~")
    assert "use loader.start_method: forkserver or spawn" in line


def test_they_may_run_where_it_is_not(copy):
    runs = planned(copy, "threads_per_worker: 2, start_method: forkserver").runs
    assert {spec.settings.loader.threads_per_worker for spec in runs.values()} == {2}
