"""The plan: each cell of the factorial is run, unsupported or excluded; repeats interleave."""

import itertools
import json
import math
import re
import subprocess
import sys

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from feedrate.config.devices import Device
from feedrate.config.plan import make_plan, timeouts_min
from feedrate.config.project import Project, check_study
from feedrate.config.settings import LoaderSettings, ModelSettings, Settings
from feedrate.config.spec import StudyProtocol, ignored_settings
from feedrate.config.study import Adaptation, Exclude, Factor, Source, Study
from feedrate.config.values import cell_name, level_text
from feedrate.config.workflow import Generated, WorkflowConfig

ABLE = ("fast_ddp", "decode_device")
SETS = {
    "loader.workers": st.integers(0, 64),
    "train.batch_size": st.integers(1, 512),
    "loader.decode": st.sampled_from(["host", "device"]),
    "loader.persistent_workers": st.booleans(),
    "train.learning_rate": st.floats(1e-7, 1.0),
    "model.size": st.sampled_from(["tiny", "base", "large"]),
}


@st.composite
def studies(draw):
    sets = draw(st.lists(st.sampled_from(sorted(SETS)), min_size=1, max_size=3, unique=True))
    factors = {}
    for number, target in enumerate(sets):
        levels = draw(st.lists(SETS[target], min_size=1, max_size=3, unique=True))
        needs = draw(st.dictionaries(st.sampled_from(levels), st.sampled_from(ABLE), max_size=1))
        factors[f"f{number}"] = Factor(
            sets=target, levels=levels, requires={level_text(k): v for k, v in needs.items()}
        )
    some = st.fixed_dictionaries(
        {}, optional={name: st.sampled_from(f.levels) for name, f in factors.items()}
    )
    exclude = draw(st.lists(some.filter(bool), max_size=2))
    return Study(
        title="t",
        question="q",
        source=Source(title="s"),
        settings=Settings(model=ModelSettings(name="bridgetower", size="tiny")),
        protocol=StudyProtocol(steps=5, warmup_steps=1, repeats=draw(st.integers(1, 4))),
        adapt=draw(st.sampled_from([{}, {"hpu": Adaptation(protocol={"repeats": 2})}])),
        factors=factors,
        baseline={name: factor.levels[0] for name, factor in factors.items()},
        exclude=[Exclude(levels=levels, why="w") for levels in exclude],
    )


@st.composite
def projects(draw):
    devices = {
        f"d{number}": Device(
            label="D",
            kind=draw(st.sampled_from(["cpu", "cuda", "hpu"])),
            count=draw(st.integers(1, 8)),
            capabilities=sorted(draw(st.sets(st.sampled_from(ABLE)))),
        )
        for number in range(draw(st.integers(1, 2)))
    }
    able = Device(label="A", kind="hpu", capabilities=list(ABLE))
    chosen = {f"s{number}": draw(studies()) for number in range(draw(st.integers(1, 2)))}
    for study in chosen.values():
        assert check_study("s", study, {**devices, "able": able}, []) == []
    config = WorkflowConfig(
        studies=list(chosen), devices=list(devices), dataset="g", datasets={"g": Generated()}
    )
    return Project(config=config, devices=devices, studies=chosen, published={})


def expected_repeats(project, study, device):
    adaptation = project.studies[study].adapt.get(project.devices[device].kind, Adaptation())
    return adaptation.protocol.get("repeats", project.studies[study].protocol.repeats)


def factorial(study):
    for levels in itertools.product(*(f.levels for f in study.factors.values())):
        yield dict(zip(study.factors, levels, strict=True))


def every_cell_is_run_or_shares_a_run_or_is_unsupported_or_excluded(project, plan):
    for name, device in itertools.product(project.studies, project.config.devices):
        study = project.studies[name]
        run = {s.cell for s in plan.runs.values() if (s.study, s.device) == (name, device)}
        shared = {s.cell for s in plan.shared if (s.study, s.device) == (name, device)}
        unable = [u.cell for u in plan.unsupported if (u.study, u.device) == (name, device)]
        excluded = {
            cell_name(levels)
            for levels in factorial(study)
            if any(e.levels.items() <= levels.items() for e in study.exclude)
        }
        assert len(unable) == len(set(unable))
        parts = (run, shared, set(unable), excluded)
        assert not any(a & b for a, b in itertools.combinations(parts, 2))
        assert set().union(*parts) == {cell_name(levels) for levels in factorial(study)}
        assert sum(map(len, parts)) == math.prod(len(f.levels) for f in study.factors.values())


def cells_share_a_run_where_they_differ_in_what_the_decoder_ignores(project, plan):
    settings_of = {(s.study, s.device, s.cell): s.settings for s in plan.runs.values()}
    kinds = {name: device.kind for name, device in project.devices.items()}
    alike = set()
    for key, found in settings_of.items():
        ignored = ignored_settings(found.loader.decode, kinds[key[1]])
        by_gaudi = found.loader.decode == "device" and kinds[key[1]] == "hpu"
        assert bool(ignored) == by_gaudi
        whole = msgspec.to_builtins(found)
        counts = json.dumps([key[:2], without_loader(whole, ignored)])
        assert counts not in alike or not ignored
        alike.add(counts)
    for cell in plan.shared:
        study = project.studies[cell.study]
        measured = settings_of[cell.study, cell.device, cell.measured_as]
        ignored = ignored_settings(measured.loader.decode, kinds[cell.device])
        own = msgspec.to_builtins(measured)
        for factor, level in cell.levels.items():
            part, key = study.factors[factor].sets.split(".")
            own[part][key] = level
        whole = msgspec.to_builtins(measured)
        assert without_loader(own, ignored) == without_loader(whole, ignored)


def without_loader(settings, ignored):
    kept = {name: value for name, value in settings["loader"].items() if name not in ignored}
    return settings | {"loader": kept}


def runs_are_cells_by_repeats_and_repeats_interleave(project, plan):
    for name, device in itertools.product(project.studies, project.config.devices):
        specs = [s for s in plan.of_study(name) if s.device == device]
        cells = list(dict.fromkeys(s.cell for s in specs))
        repeats = expected_repeats(project, name, device)
        order = [(s.repeat, s.cell) for s in specs]
        assert order == list(itertools.product(range(1, repeats + 1), cells))


def names_are_unique_and_can_stand_in_a_path(project, plan):
    for key, spec in plan.runs.items():
        assert key == (spec.study, spec.device, spec.cell, spec.repeat)
        assert re.fullmatch(r"[A-Za-z0-9_.+=~-]+", spec.cell)
        assert spec.cell == cell_name(spec.levels)
        assert len(spec.cell) < 255
    folders = {(s.study, s.device, s.cell, s.repeat) for s in plan.runs.values()}
    assert len(folders) == len(plan.runs)


def seeds_differ_between_repeats_and_only_there(project, plan):
    for spec in plan.runs.values():
        assert spec.seed == project.studies[spec.study].protocol.seed + spec.repeat - 1


def a_run_has_the_settings_of_its_levels_and_else_those_of_the_study(project, plan):
    for spec in plan.runs.values():
        study = project.studies[spec.study]
        wanted = msgspec.to_builtins(study.settings)
        for factor, level in spec.levels.items():
            part, key = study.factors[factor].sets.split(".")
            wanted[part][key] = level
        assert spec.settings == msgspec.convert(wanted, Settings)
        assert msgspec.convert(msgspec.to_builtins(spec), type(spec)) == spec


def only_what_a_device_lacks_is_unsupported(project, plan):
    for cell in plan.unsupported:
        study, device = project.studies[cell.study], project.devices[cell.device]
        needed = {
            study.factors[name].requires.get(level_text(level))
            for name, level in cell.levels.items()
        }
        lacking = needed - {None} - set(device.capabilities)
        assert lacking
        assert set(cell.lacks.split(", ")) == lacking


def the_plan_is_the_same_each_time(project, plan):
    assert list(make_plan(project).runs.items()) == list(plan.runs.items())


RULES = [
    every_cell_is_run_or_shares_a_run_or_is_unsupported_or_excluded,
    cells_share_a_run_where_they_differ_in_what_the_decoder_ignores,
    runs_are_cells_by_repeats_and_repeats_interleave,
    names_are_unique_and_can_stand_in_a_path,
    seeds_differ_between_repeats_and_only_there,
    a_run_has_the_settings_of_its_levels_and_else_those_of_the_study,
    only_what_a_device_lacks_is_unsupported,
    the_plan_is_the_same_each_time,
]


@settings(max_examples=60, deadline=None)
@given(projects())
def test_a_plan_keeps_every_rule(project):
    """All rules on the same projects: drawing a project takes longer than checking its plan."""
    plan = make_plan(project)
    for rule in RULES:
        rule(project, plan)


@pytest.fixture
def small():
    study = Study(
        title="t",
        question="q",
        source=Source(title="s"),
        settings=Settings(model=ModelSettings(name="bridgetower", size="large")),
        protocol=StudyProtocol(steps=100, warmup_steps=10),
        adapt={
            "cuda": Adaptation(settings={"model": {"size": "base"}}, protocol={"steps": 50}),
            "gpu": Adaptation(settings={"train": {"batch_size": 7}}),
            "cpu": Adaptation(settings={"model": {"size": "tiny"}, "loader": {"workers": 9}}),
        },
        factors={"workers": Factor(sets="loader.workers", levels=[0, 1])},
        baseline={"workers": 0},
    )
    devices = {
        "gpu": Device(label="G", kind="cuda", count=8, capabilities=[]),
        "cpu": Device(label="C", kind="cpu", capabilities=[]),
        "hpu": Device(label="H", kind="hpu", count=8, capabilities=[], launcher="mpirun"),
    }
    config = WorkflowConfig(
        studies=["s"], devices=list(devices), dataset="g", datasets={"g": Generated()}
    )
    return Project(config=config, devices=devices, studies={"s": study}, published={"s": []})


def first(project, device):
    return next(s for s in make_plan(project).runs.values() if s.device == device)


def test_a_study_adapts_to_the_kind_and_then_to_the_device(small):
    gpu, cpu, hpu = (first(small, device) for device in ("gpu", "cpu", "hpu"))
    assert (gpu.settings.model.size, gpu.settings.train.batch_size) == ("base", 7)
    assert (gpu.protocol.steps, gpu.protocol.warmup_steps) == (50, 10)
    assert (hpu.settings.model.size, hpu.settings.train.batch_size) == ("large", 48)
    assert cpu.settings.model == ModelSettings(name="bridgetower", size="tiny")
    assert cpu.settings.loader == LoaderSettings(workers=0), "a level goes over what is adapted"


def test_repeats_and_checkpoint_of_the_workflow_go_over_those_of_the_study(small):
    config = msgspec.structs.replace(
        small.config, repeats=1, checkpoint="org/model", checkpoint_revision="abc"
    )
    plan = make_plan(msgspec.structs.replace(small, config=config))
    assert len(plan.runs) == 2 * 3
    for spec in plan.runs.values():
        assert spec.repeat == 1
        assert (spec.settings.model.checkpoint, spec.settings.model.revision) == (
            "org/model",
            "abc",
        )


@pytest.mark.parametrize(("model", "taken"), [("bridgetower", True), ("vit", False)])
def test_a_checkpoint_is_for_studies_of_its_model(small, model, taken):
    config = msgspec.structs.replace(small.config, checkpoint="org/model", checkpoint_model=model)
    plan = make_plan(msgspec.structs.replace(small, config=config))
    assert {spec.settings.model.name for spec in plan.runs.values()} == {"bridgetower"}
    found = {spec.settings.model.checkpoint for spec in plan.runs.values()}
    assert found == {"org/model" if taken else None}


def test_a_whole_number_for_a_real_setting_becomes_one(small):
    """1 and 1.0 are one setting, and so one spec."""
    factor = Factor(sets="train.learning_rate", levels=[1])
    study = msgspec.structs.replace(
        small.studies["s"], factors={"rate": factor}, baseline={"rate": 1}
    )
    spec = first(msgspec.structs.replace(small, studies={"s": study}), "cpu")
    assert type(spec.settings.train.learning_rate) is float
    assert spec.cell == "rate=1"


STUDY = "bridgetower-inference"
HALF = ("timeout_min: 60", "timeout_min: 30")


def test_more_time_leaves_every_run_as_it_is(copy):
    before = make_plan(copy.load(studies=[STUDY])).runs
    changed = copy.edit(f"studies/{STUDY}.yaml", HALF).load(studies=[STUDY], devices=["cpu"])
    assert make_plan(changed).runs == {k: spec for k, spec in before.items() if k[1] == "cpu"}
    assert timeouts_min(changed) == {STUDY: {"cpu": 30.0}}


HEAVY = {
    "torch", "numpy", "pandas", "pyarrow", "matplotlib", "transformers", "datasets", "jsonschema",
    "PIL", "tensorboard", "snakemake", "difflib", "jinja2",
}  # fmt: skip


def test_planning_imports_nothing_heavy(root):
    code = (
        "import sys; from pathlib import Path; from feedrate.config.values import read_yaml; "
        "from feedrate.config.plan import make_plan; "
        "from feedrate.config.project import load_project; "
        f"root = Path({str(root)!r}); "
        "make_plan(load_project(root, read_yaml(root / 'config/config.yaml'))); "
        "print(*{name.partition('.')[0] for name in sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert HEAVY & set(done.stdout.split()) == set()
