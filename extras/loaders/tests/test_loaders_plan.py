"""The study of loader libraries: what is planned where they are installed and where not, and which
code a run with one of them has."""

import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

import feedrate_loaders.libraries
from feedrate.config.plan import make_plan
from feedrate.config.project import Project, load_project
from feedrate.config.spec import library_of
from feedrate.core import paths
from feedrate.core.files import write_json
from feedrate.devices import host
from feedrate.flow.folders import run_folder
from feedrate.flow.graph import Graph
from feedrate.flow.identity import DigestCache, measured_code
from feedrate.jobs.events import Data
from feedrate.results import conformity
from feedrate_loaders.libraries._rules import missing_packages
from feedrate_loaders.tables.loader_claims import claims
from golden import freeze
from tiny_spec import tiny_spec

EXTRAS = Path(__file__).resolve().parents[1]
ROOT = EXTRAS.parents[1]
RULES = "feedrate_loaders.libraries._rules"
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

    def digest(library=None):
        asked = {} if library is None else {"library": library}
        spec = tiny_spec(loader={"workers": 1, "decode": "host", **asked})
        return DigestCache(tmp_path / "cache.json").of_code(measured_code(spec))

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
        ({"library": "spdl"}, ("torch", "same"), "spdl-core, same, was requested; torch, same"),
        ({"library": "spdl"}, ("litdata 0.2.76", "same"), "litdata 0.2.76, same, was used"),
        ({"library": "spdl", "form": "best"}, ("spdl-core 0.8.0", "same"), "best, was requested"),
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


def graph_of(project):
    """What the next call plans."""
    return Graph(project, Path.cwd())


def left(folder, status):
    """The outcome of an attempt."""
    write_json(Path(folder) / paths.OUTCOME_NAME, {"status": status})


@pytest.fixture
def without_libraries(monkeypatch):
    """No loader library is installed."""
    monkeypatch.setattr(f"{RULES}.missing_packages", lambda *_: "pip install it")


def test_a_library_that_is_removed_takes_no_finished_run_out(root, monkeypatch):
    project = load(root, studies=[STUDY], devices=["cpu"], repeats=2)
    monkeypatch.setattr(f"{RULES}.missing_packages", lambda *_: "")
    graph = graph_of(project)
    of = {s.levels["loader"]: s for s in graph.plan.runs.values() if s.repeat == 1}
    finished, edited, failed = of["spdl"], of["webdataset"], of["litdata"]
    left(graph.folders.target(finished), "ok")
    left(run_folder(edited, "0a1b2c3d"), "ok")
    left(graph.folders.target(failed), "failed")
    monkeypatch.setattr(f"{RULES}.missing_packages", lambda *_: "pip install it")
    left_over = graph_of(project)
    kept = [key for key, s in left_over.plan.runs.items() if library_of(s.settings.loader)]
    assert kept == [(STUDY, "cpu", finished.cell, 1)]
    (plan,) = left_over.study_plans()
    lacking = {cell.cell: cell.lacks for cell in plan.unsupported}
    assert (lacking[edited.cell], lacking[failed.cell]) == ("webdataset", "litdata")
    assert finished.cell not in lacking


def test_a_disturbed_run_of_a_removed_library_is_not_tried_again(root, without_libraries):
    project = load(root, studies=[STUDY], devices=["cpu"])
    spec = next(s for s in make_plan(project).runs.values() if library_of(s.settings.loader))
    folder = Graph(project, root, make_plan(project)).folders.target(spec)
    left(folder, "ok")
    key = spec.study, spec.device, spec.cell, 1
    assert key in graph_of(project).plan.runs
    file = Path(paths.DISTURBED.format(study=spec.study, device=spec.device))
    write_json(file, [folder])
    assert key not in graph_of(project).plan.runs


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

    monkeypatch.setattr(f"{RULES}.metadata.distributions", lambda name: [name])
    monkeypatch.setattr(f"{RULES}.find_library", lambda name: None)
    monkeypatch.setattr(f"{RULES}.ctypes.CDLL", load_library)
    real = missing_packages.__wrapped__  # which keeps no answer
    monkeypatch.setattr(f"{RULES}.missing_packages", real)
    return files


def test_a_form_without_its_shared_library_is_unsupported_before_any_run(root, system):
    project = load(root, studies=[STUDY], devices=["cpu"])
    (one, other) = graph_of(project).plan.unsupported[-2:]
    assert {one.levels["loader"], other.levels["loader"]} == {"spdl-best"}
    assert "ffmpeg (libavdevice.so.58 to 63), not installed here" in one.install
    assert one.install.endswith("install: apt-get install ffmpeg")
    system.add("libavdevice.so.57")  # of FFmpeg 3
    assert one in graph_of(project).plan.unsupported
    system.add("libavdevice.so.60")
    graph = graph_of(project)
    assert "spdl-best" not in {cell.levels["loader"] for cell in graph.plan.unsupported}
    ran = next(s for s in graph.plan.runs.values() if s.cell == one.cell)
    left(graph.folders.target(ran), "ok")
    system.clear()
    kept = graph_of(project).plan.unsupported
    assert (one in kept, other in kept) == (False, True), "its result outlives the library"
