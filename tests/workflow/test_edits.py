"""What runs again after which edit: tests/golden/edits.yaml, in a project without training."""

import json
import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import yaml
from mini_project import DATA, MINI, ROOT, Project, know_code

from feedrate.config.values import merged
from feedrate.flow import configuration, identity
from feedrate.flow.graph import Graph
from run_folder import make_outcome, write_run

EDITS = yaml.safe_load((ROOT / "tests/golden/edits.yaml").read_text())
STAGES = {
    "fetch_dataset": "fetch",
    "preprocess_dataset": "prepare",
    "train": "train",
    "parse_logs": "parse",
    "collect_results": "collect",
    "check_claims": "claims",
    "plot_figures": "figures",
    "tabulate_results": "tables",
    "write_report": "page",
}
"""Stage by rule, or by the first word of the rule's name."""
CLAIM = {"id": "c", "text": "one", "expression": "*[workers=1] / *[workers=0]", "more_than": 1}
STUDY = MINI | {
    "source": {"title": "none", "editions": ["2026"]},
    "factors": {"workers": {"sets": "loader.workers", "levels": [0, 1]}}
    | {"decode": MINI["factors"]["decode"]},
    "claims": [CLAIM],
    "published": ["mini.csv"],
}
PUBLISHED = (
    "id,device,count,levels,metric,value,unit,edition,source\n"
    "one,cpu,1,workers=1,samples_per_s,5,samples/s,2026,none\n"
)
ANSWERS = {
    "title": "Answers",
    "question": "How fast?",
    "task": "inference",
    "source": {"title": "Our own question"},
    "settings": {
        "model": {"name": "bridgetower", "size": "tiny"},
        "loader": {"decode": "host", "workers": 0, "max_tokens": 6},
        "train": {"batch_size": 4, "precision": "fp32"},
    },
    "protocol": {"steps": 5, "warmup_steps": 1, "repeats": 1, "ceiling_s": 0, "evaluate": False},
    "factors": {"batch": {"sets": "train.batch_size", "levels": [4]}},
    "baseline": {"batch": 4},
}
LARGE = 2_000_000
"""Bytes: of a file of more than a million, Snakemake computes no checksum."""
CELL = "runs/mini/cpu/workers=1~decode=host"
INPUTS = ("config", "envs", "report", "resources", "runs", "workflow")
FOLDERS = (*INPUTS, "results", ".snakemake/feedrate")


@pytest.fixture(scope="module")
def ended(prepared: Project, tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A project whose runs have all ended, without any training, and whose report is there."""
    root = tmp_path_factory.mktemp("edits") / "project"
    project = know_code(Project(shutil.copytree(prepared.root, root, symlinks=True)))
    project.device("cpu", software={"environment": {"A": "1", "B": "2"}})
    project.config(studies=["mini", "answers"])
    for name, study in (("mini", STUDY), ("answers", ANSWERS)):
        (root / f"config/studies/{name}.yaml").write_text(yaml.safe_dump(study, sort_keys=False))
    (root / "config/published/mini.csv").write_text(PUBLISHED)
    write_runs(root)
    made = project.call("snakemake", "--profile", "profiles/local")
    assert (root / "report.html").exists(), made.stdout
    return project


def write_runs(root: Path) -> None:
    """The folders that the runs of a project would leave."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        patch.setattr(identity, "PACKAGE", root / "workflow/feedrate")
        graph = Graph(configuration.load(Path(), configuration.read_layers([])), Path())
        for spec in graph.plan.runs.values():
            outcome = make_outcome(attempt=1, identity=graph.identity(spec))
            write_run(Path(graph.folders.target(spec)), spec=spec, outcome=outcome)


def files_of(root: Path, folders: Sequence[str] = FOLDERS) -> dict[Path, tuple[bytes, int]]:
    """The content and the time of all files that an edit, or a plan after it, may change."""
    files = (file for folder in folders for file in (root / folder).rglob("*"))
    chosen = (file for file in files if file.is_file() and "__pycache__" not in file.parts)
    return {file: (file.read_bytes(), file.stat().st_mtime_ns) for file in chosen}


@pytest.fixture
def project(ended: Project) -> Iterator[Project]:
    """The same project, which gets its files back after the test."""
    before, state = files_of(ended.root), ended.root / ".snakemake"
    yield ended
    for file, (content, time_ns) in before.items():
        if not file.exists() or (file.read_bytes(), file.stat().st_mtime_ns) != (content, time_ns):
            file.write_bytes(content)
            os.utime(file, ns=(time_ns, time_ns))
    for file in files_of(ended.root).keys() - before.keys():
        file.unlink()
    if (kept := ended.root / "forgotten").exists():
        shutil.rmtree(state)
        kept.rename(state)


def make_edit(project: Project, edit: dict) -> None:
    root = project.root
    for file, changes in edit.get("edit", {}).items():
        for old, new in changes.items():
            project.edit(file, old, new)
    for file in edit.get("code", []):
        with (root / "workflow/feedrate" / file).open("a") as stream:
            stream.write("\nADDED = 1\n")
    if "study" in edit:
        project.study(**merged(STUDY, edit["study"]))
    if "device" in edit:
        project.device("cpu", **edit["device"])
    if "data" in edit:
        config = yaml.safe_load((root / "config/config.yaml").read_text())
        project.config(datasets=config["datasets"] | {"small": DATA | edit["data"]})
    if "config" in edit:
        project.config(**edit["config"])
    if "outcome" in edit:
        (outcome,) = root.glob(f"{CELL}/*/outcome.json")
        time_ns = outcome.stat().st_mtime_ns
        outcome.write_text(json.dumps(json.loads(outcome.read_text()) | edit["outcome"]))
        os.utime(outcome, ns=(time_ns, time_ns))
    if edit.get("do") in ("touch", "checkout"):
        for file in files_of(root, INPUTS):
            os.utime(file)
    if edit.get("do") in ("forget", "checkout"):
        (root / ".snakemake").rename(root / "forgotten")
    if edit.get("do") == "manifest":
        (manifest,) = root.glob("resources/datasets/small/prepared-*/manifest.json")
        manifest.write_text(manifest.read_text() + " " * LARGE)
    if edit.get("do") == "image":
        first, *_, last = sorted(root.glob("resources/datasets/small/raw-*/**/*.jpg"))
        first.write_bytes(last.read_bytes())


def stages_and_runs(project: Project) -> tuple[set[str], int]:
    """The stages that would run now, and the number of runs."""
    planned = project.planned()
    stages = {STAGES.get("train" if rule.startswith("train_") else rule) for rule in planned}
    runs = sum(count for rule, count in planned.items() if rule.startswith("train_"))
    return stages - {None}, runs


def expected(edit: dict) -> set[str]:
    order = list(STAGES.values())
    return set(order[order.index(edit["from"]) :] if "from" in edit else edit.get("again", []))


MADE = {name: edit for name, edit in EDITS.items() if "test" not in edit}
SEEN = {name: edit for name, edit in MADE.items() if expected(edit) or edit.get("do") == "touch"}
"""Of touched files the content counts, so it must not be edited too."""


def test_edits_after_which_nothing_runs(project):
    """All in one plan."""
    assert stages_and_runs(project) == (set(), 0)
    others = MADE.keys() - SEEN.keys()
    for name in others:
        make_edit(project, MADE[name])
    assert len(others) > 10
    assert stages_and_runs(project) == (set(), 0), others


@pytest.mark.parametrize("name", SEEN)
def test_an_edit_runs_again_what_it_changes_and_nothing_else(project, name):
    make_edit(project, SEEN[name])
    assert stages_and_runs(project) == (expected(SEEN[name]), SEEN[name].get("runs", 0))
