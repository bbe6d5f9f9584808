"""What training jobs request, with and without retries."""

from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from feedrate.config.project import load_project
from feedrate.config.values import read_yaml
from feedrate.flow.resources import START_MIN, training

ROOT = Path(__file__).resolve().parents[3]
FIRST, SECOND = "bridgetower-dataloading", "bridgetower-learning"


@pytest.fixture(scope="module")
def project():
    return load_project(ROOT, read_yaml(ROOT / "config/config.yaml") | {"studies": [FIRST, SECOND]})


def requests(project, *, retried, limits_min):
    """The resources of `train_cpu` where the studies have these time limits."""
    replace = msgspec.structs.replace
    studies = {
        name: replace(study, protocol=replace(study.protocol, timeout_min=limit))
        for (name, study), limit in zip(project.studies.items(), limits_min, strict=True)
    }
    changed = replace(project, studies=studies)
    return training(changed, "cpu", retried=retried)


def value(request, study, attempt):
    return request(SimpleNamespace(study=study), attempt=attempt) if callable(request) else request


def test_a_retried_job_knows_its_try_and_gets_twice_the_time(project):
    found = requests(project, retried=True, limits_min=(30, 30))
    assert [value(found["tries"], FIRST, attempt) for attempt in (1, 2, 3)] == [1, 2, 3]
    limit_min = 30 + START_MIN
    limits_min = [value(found["runtime"], FIRST, attempt) for attempt in (1, 2, 3)]
    assert limits_min == [limit_min, 2 * limit_min, 2 * limit_min]


def test_without_retries_equal_limits_are_constants(project):
    found = requests(project, retried=False, limits_min=(30, 30))
    assert (found["tries"], found["runtime"]) == (1, 30 + START_MIN)


@pytest.mark.parametrize("retried", [True, False])
def test_each_study_keeps_its_own_limit(project, retried):
    found = requests(project, retried=retried, limits_min=(30, 60))
    limits_min = [value(found["runtime"], study, 1) for study in (FIRST, SECOND)]
    assert limits_min == [30 + START_MIN, 60 + START_MIN]
