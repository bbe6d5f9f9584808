"""Every study with every device of the registry: what is run there can be run there."""

import math
from functools import cache
from pathlib import Path

import pytest

from feedrate.config.plan import make_plan
from feedrate.config.project import load_project
from feedrate.config.spec import library_of
from feedrate.config.values import read_yaml
from feedrate.results.expression import check_expressions

ROOT = Path(__file__).resolve().parents[3]
STUDIES = sorted(path.stem for path in (ROOT / "config/studies").glob("*.yaml"))
DEVICES = list(read_yaml(ROOT / "config/devices.yaml"))


@cache
def project_of(study):
    config = read_yaml(ROOT / "config/config.yaml")
    return load_project(ROOT, config | {"studies": [study], "devices": DEVICES})


@cache
def runs_of(study):
    return list(make_plan(project_of(study)).runs.values())


@pytest.mark.parametrize("study", STUDIES)
def test_no_planned_run_is_refused_by_its_device(study):
    """A level that a device cannot do is `unsupported` in the plan, not a failure in the job."""
    from feedrate.devices.base import refusals
    from feedrate.jobs.strategy import check_strategy

    ladder, checked = project_of(study).studies[study].ladder, set()
    for spec in runs_of(study):
        cell = [str(level) for factor, level in spec.levels.items() if factor not in ladder]
        if (spec.device, *cell) not in checked:  # the others differ in seed, batch and size only
            checked.add((spec.device, *cell))
            check_strategy(spec)
            assert not list(refusals(spec))
    assert {spec.device for spec in runs_of(study)} == set(DEVICES)


@pytest.mark.parametrize("study", STUDIES)
def test_claims_stand_on_what_is_there(study):
    project = project_of(study)
    entry = project.studies[study]
    check_expressions(study, entry, project.devices)
    cells = math.prod(len(factor.levels) for factor in entry.factors.values())
    traced = entry.protocol.profile_steps
    assert entry.claims or cells == 1 or traced, "there is nothing to compare"
    # A question of our own has no source, and nobody has published numbers for it.
    assert traced or bool(project.published[study]) is bool(entry.source.address)
    assert all(row.source and row.protocol for row in project.published[study])


@pytest.mark.parametrize("study", STUDIES)
def test_the_small_form_is_small(study):
    """Minutes on two cores: few cells, few steps, the tiny model."""
    ours = [spec for spec in runs_of(study) if not library_of(spec.settings.loader)]
    runs = [spec for spec in ours if spec.device == "cpu"]  # libraries are optional
    assert runs
    assert {spec.settings.model.size for spec in runs} == {"tiny"}
    # A forward pass is a third of a step's work.
    steps = [s.protocol.steps / (3 if s.task == "inference" else 1) for s in runs]
    assert sum(steps) < 1700
