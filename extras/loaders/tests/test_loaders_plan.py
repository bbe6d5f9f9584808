"""The study of loader libraries: what is planned where they are installed and where not, and which
code a run with one of them has."""

import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest
import yaml

import feedrate_loaders.libraries
from feedrate.config.plan import make_plan
from feedrate.config.project import Project, load_project
from feedrate.config.spec import library_of, missing_packages
from feedrate.core import paths
from feedrate.core.files import digest_value, write_json
from feedrate.devices import host
from feedrate.flow.digests import CODE, DigestCache, plugins_of, source_digest
from feedrate.flow.view import PlanView
from feedrate.jobs.events import Data
from feedrate.results import conformity
from feedrate_loaders.tables.loader_claims import claims
from golden import freeze
from tiny_spec import tiny_spec

EXTRAS = Path(__file__).resolve().parents[1]
ROOT = EXTRAS.parents[1]
STUDY = "loader-claims"


@pytest.fixture
def root(tmp_path, monkeypatch):
    """A project's root with a copy of the configuration and the study, where it is also driven."""
    shutil.copytree(ROOT / "config", tmp_path / "config")
    shutil.copytree(EXTRAS / "project", tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def load(root, **changes) -> Project:
    config = yaml.safe_load((root / "config/config.yaml").read_text())
    return load_project(root, config | {"studies": [STUDY], "devices": ["cpu"]} | changes)


def test_every_spec_is_the_same(root):
    """As those of the own studies: tests/golden/README.md says what a difference means."""
    devices = list(yaml.safe_load((root / "config/devices.yaml").read_text()))
    usual = json.loads(freeze.DEFAULTS.read_text())
    found = freeze.spec_digests(make_plan(load(root, devices=devices)), usual)
    assert found == json.loads((EXTRAS / "tests/spec_digests.json").read_text())


def test_statements_are_about_loaders_of_the_study(root):
    levels = load(root).studies[STUDY].factors["loader"].levels
    assert {name for claim in claims() for name in (claim.loader, claim.over)} <= set(levels)


def test_the_small_form_is_small(root):
    """Minutes on two cores: few steps, the tiny model."""
    runs = make_plan(load(root)).runs.values()
    assert {spec.settings.model.size for spec in runs} == {"tiny"}
    ours = [spec for spec in runs if not library_of(spec.settings.loader)]
    assert sum(spec.protocol.steps for spec in ours) < 1700
    assert not [spec.cell for spec in runs if spec.settings.loader.decode == "device"]


def test_packages_of_libraries_are_recorded(monkeypatch):
    monkeypatch.setattr(host.importlib.metadata, "version", lambda name: f"of {name}")
    assert {"ffcv", "numba", "spdl-core"} <= host.host_facts()["packages"].keys()


def test_an_edit_of_a_librarys_helper_changes_the_code_of_its_runs_only(tmp_path, monkeypatch):
    copy = tmp_path / "feedrate_loaders"
    shutil.copytree(Path(feedrate_loaders.__path__[0]), copy)
    monkeypatch.setattr(feedrate_loaders, "__path__", [str(copy)])
    monkeypatch.setattr(feedrate_loaders.libraries, "__path__", [str(copy / "libraries")])

    def digest(*library):
        code, run = CODE["measured"], ("cpu", "single", "vit", "host", *library)
        code = code._replace(programs=code.programs + plugins_of.__wrapped__(*run))
        return source_digest(DigestCache(tmp_path / "cache.json"), code)

    before = digest("spdl"), digest("grain"), digest()
    with (copy / "libraries/spdl.py").open("a") as file:
        file.write("ADDED = 1\n")
    assert digest("spdl") != before[0]
    assert (digest("grain"), digest()) == before[1:]
    with (copy / "libraries/_feed.py").open("a") as file:
        file.write("ADDED = 1\n")
    assert digest("grain") != before[1]
    assert digest() == before[2]


@pytest.mark.parametrize(
    ("asked", "used", "words"),
    [
        ({"library": "spdl"}, ("spdl-core 0.8.0", "same"), ""),
        ({"library": "spdl", "form": "best"}, ("spdl-core 0.8.0", "best"), ""),
        ({"library": "spdl"}, ("torch", "same"), "spdl-core, same, was asked for; torch, same"),
        ({"library": "spdl"}, ("litdata 0.2.76", "same"), "litdata 0.2.76, same, was used"),
        ({"library": "spdl", "form": "best"}, ("spdl-core 0.8.0", "same"), "best, was asked for"),
        ({"library": "spdl"}, (None, None), "the run reported none"),
    ],
)
def test_a_run_with_another_library_than_asked_for_is_invalid(asked, used, words):
    spec = tiny_spec(loader={"workers": 1, "decode": "host", **asked})
    library, form = used
    data = Data(rank=0, digest="d", decode="host", library=library, form=form)
    good, detail = conformity.library(SimpleNamespace(spec=spec, first=SimpleNamespace(data=data)))
    assert good is not bool(words)
    assert words in detail


def params(project, spec):
    return PlanView(project, Path()).training(spec.study, spec.device, spec.cell, str(spec.repeat))


def left(spec, status, source):
    """The run's outcome of the code `source`; of data that are not there."""
    file = paths.run_dir(spec.study, spec.device, spec.cell, spec.repeat) / "outcome.json"
    outcome = {"status": status, "cause": "", "attempt": 1, "source_digest": source}
    spec_digest = digest_value(msgspec.to_builtins(spec))
    write_json(file, outcome | {"spec_digest": spec_digest, "data_digest": ""})


@pytest.fixture
def without_libraries(monkeypatch):
    """No loader library is installed."""
    monkeypatch.setattr("feedrate.config.plan.missing_packages", lambda *_: "pip install it")


def test_a_library_that_is_removed_takes_no_finished_run_out(root, monkeypatch):
    project = load(root, studies=[STUDY], devices=["cpu"], repeats=2)
    monkeypatch.setattr("feedrate.config.plan.missing_packages", lambda *_: "")
    view = PlanView(project, Path())
    of = {spec.levels["loader"]: spec for spec in view.plan.runs.values() if spec.repeat == 1}
    finished, edited, failed = of["spdl"], of["webdataset"], of["litdata"]
    source = {spec.cell: params(project, spec)["source"] for spec in of.values()}
    left(finished, "ok", source[finished.cell])
    left(edited, "ok", "code of before")
    left(failed, "failed", source[failed.cell])
    monkeypatch.setattr("feedrate.config.plan.missing_packages", lambda *_: "pip install it")
    left_over = PlanView(project, Path())
    kept = [key for key, s in left_over.plan.runs.items() if library_of(s.settings.loader)]
    assert kept == [(STUDY, "cpu", finished.cell, 1)]
    told = left_over.collecting(STUDY)["settings"]["unsupported"]
    lacking = {cell["cell"]: cell["lacks"] for cell in told}
    assert (lacking[edited.cell], lacking[failed.cell]) == ("webdataset", "litdata")
    assert finished.cell not in lacking


def test_a_disturbed_run_of_a_removed_library_is_not_tried_again(root, without_libraries):
    project = load(root, studies=[STUDY], devices=["cpu"])
    spec = next(s for s in make_plan(project).runs.values() if library_of(s.settings.loader))
    left(spec, "ok", PlanView(project, Path(), make_plan(project))._measured(spec)["source"])
    key = spec.study, spec.device, spec.cell, 1
    assert key in PlanView(project, Path()).plan.runs
    records = Path(paths.RECORDS.format(study=spec.study, device=spec.device))
    write_json(records, {"disturbed": {str(paths.run_dir(*key)): 1}})
    assert key not in PlanView(project, Path()).plan.runs


def test_what_is_installed_changes_no_plan(root, without_libraries):
    runs = make_plan(load(root, studies=[STUDY], devices=["cpu"])).runs.values()
    assert {"spdl", "ffcv"} <= {library_of(spec.settings.loader) for spec in runs}


@pytest.fixture
def system(monkeypatch):
    """A system that has all loader libraries, and these shared libraries, by file name."""
    files = set()

    def load_library(file):
        if file not in files:
            raise OSError(f"{file}: cannot open shared object file")

    monkeypatch.setattr("feedrate.config.spec.metadata.distributions", lambda name: [name])
    monkeypatch.setattr("feedrate.config.spec.find_library", lambda name: None)
    monkeypatch.setattr("feedrate.config.spec.ctypes.CDLL", load_library)
    real = missing_packages.__wrapped__  # which keeps no answer
    monkeypatch.setattr("feedrate.config.plan.missing_packages", real)
    return files


def test_a_form_without_its_shared_library_is_unsupported_before_any_run(root, system):
    project = load(root, studies=[STUDY], devices=["cpu"])
    (one, other) = PlanView(project, Path()).plan.unsupported[-2:]
    assert {one.levels["loader"], other.levels["loader"]} == {"spdl-best"}
    assert "ffmpeg (libavdevice.so.58 to 63), not installed here" in one.install
    assert one.install.endswith("install: apt-get install ffmpeg")
    system.add("libavdevice.so.57")  # of FFmpeg 3
    assert one in PlanView(project, Path()).plan.unsupported
    system.add("libavdevice.so.60")
    view = PlanView(project, Path())
    assert "spdl-best" not in {cell.levels["loader"] for cell in view.plan.unsupported}
    ran = next(s for s in view.plan.runs.values() if s.cell == one.cell)
    left(ran, "ok", params(project, ran)["source"])
    system.clear()
    kept = PlanView(project, Path()).plan.unsupported
    assert (one in kept, other in kept) == (False, True), "its result outlives the library"
