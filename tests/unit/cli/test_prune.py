"""`python -m feedrate prune`: what it lists, and what it deletes."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from campaign import STUDY, campaign
from feedrate import __main__ as entry
from feedrate.config.plan import Plan, make_plan
from feedrate.config.project import load_project
from feedrate.flow import driver
from feedrate.flow.graph import Graph

KEPT = Path("resources/datasets/generated")


@pytest.fixture
def planned(tmp_path, monkeypatch):
    """A project with runs of another identity, and folders of its first planned run."""
    monkeypatch.chdir(campaign(tmp_path / "project"))
    Path("profiles/local").mkdir(parents=True)
    Path("profiles/local/config.yaml").write_text("executor: local\n")
    project = load_project(Path(), yaml.safe_load(Path("config/config.yaml").read_text()))
    graph = Graph(project, Path().resolve(), make_plan(project))
    first = Path(graph.folders.target(next(iter(graph.plan.runs.values()))))
    ended(first, "failed")
    ended(first.with_name(f"{first.name}-2"), "ok")
    (KEPT / "prepared-99999999").mkdir()
    for file in graph.data.raw_index("generated"), graph.data.manifest("generated"):
        Path(file).parent.mkdir(parents=True)
        Path(file).write_text("{}")
    return first


def ended(folder, status):
    """A run that has ended, with its log."""
    folder.mkdir(parents=True)
    (folder / "outcome.json").write_text(json.dumps({"status": status}))
    folder.with_name(f"{folder.name}.log").write_text("printed")


def runs():
    """All folders and logs of runs."""
    return set(Path("runs").glob("*/*/*/*"))


def test_it_only_lists_where_nobody_can_answer(planned, capsys):
    before = runs()
    assert entry.main(["prune"]) == 0
    out = capsys.readouterr().out
    assert f"Runs of {STUDY} on cpu" in out
    lines = {line.split("  ")[0]: line.split()[-4:] for line in out.splitlines()}
    assert "an older attempt" in lines
    assert "other settings, code, data or environment" in lines
    assert out.splitlines()[-1].startswith("15 folders (")  # 12, an attempt, 2 of data
    assert runs() == before


def test_what_no_planned_run_uses_is_deleted(planned):
    place = planned.with_name(f".{planned.name}-2.0.pid-1-1@{os.uname().nodename}")
    place.mkdir()
    elsewhere = planned.with_name(f".{planned.name}-2.0.pid-1-1@elsewhere")
    elsewhere.mkdir()
    assert entry.main(["prune", "--yes"]) == 0
    newest = planned.with_name(f"{planned.name}-2")
    assert runs() == {newest, newest.with_name(f"{newest.name}.log"), elsewhere}
    assert [cell.name for cell in planned.parents[1].iterdir()] == [planned.parent.name]
    assert sorted(path.name.split("-")[0] for path in KEPT.iterdir()) == ["prepared", "raw"]
    assert entry.main(["prune", "--yes"]) == 0


@pytest.mark.parametrize(("answer", "deletes"), [("y", True), ("", False), ("n", False)])
def test_it_asks_first(planned, monkeypatch, answer, deletes):
    asked = []
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("builtins.input", lambda text: asked.append(text) or answer)
    before = runs()
    assert entry.main(["prune"]) == 0
    assert asked[0].startswith("Delete 15 folders (")
    assert asked[0].endswith(")? [y/N] ")
    assert (runs() < before) == deletes


def test_runs_whose_library_is_not_installed_here_are_planned(planned, monkeypatch):
    nothing = Plan(runs={}, unsupported=[])
    monkeypatch.setattr("feedrate.flow.graph.runnable", lambda *_: nothing)
    assert entry.main(["prune", "--yes"]) == 0
    assert planned.with_name(f"{planned.name}-2") in runs()


def test_a_kill_in_the_middle_leaves_no_complete_folder(planned, monkeypatch):
    def killed(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(shutil, "rmtree", killed)
    assert entry.main(["prune", "--yes"]) == 130
    (half,) = (run for run in runs() if run.is_dir() and not (run / "outcome.json").exists())
    assert any(half.iterdir())
    monkeypatch.undo()


def test_nothing_is_deleted_while_a_driver_works(planned, capsys):
    before = runs()
    driver.LOCK.parent.mkdir(exist_ok=True)
    code = (
        "import fcntl, sys; f = open(sys.argv[1], 'w'); fcntl.flock(f, fcntl.LOCK_EX);"
        "print(flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", code, str(driver.LOCK)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        other.stdout.readline()
        assert entry.main(["prune", "--yes"]) == 3
        other.stdin.close()
    assert "another call works in this folder" in capsys.readouterr().err
    assert runs() == before
