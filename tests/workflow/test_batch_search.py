"""The search for the largest batch, in real trainings under a limit of memory."""

import csv
import json
import sys
from pathlib import Path

import pytest
import yaml
from mini_project import Project

import warm

STUDY = "flava-batch-search"
LISTED = 2
"""The only batch that the study lists. It fits."""
STEPS = 2
"""Optimizer steps of a run: the search goes no further than this many times the listed batch."""
LIMIT_GIB = 0.44
"""Twice the listed batch does not fit; a batch between the two may."""
VARIABLES = {"MALLOC_ARENA_MAX": "1"}
"""Jobs with limited memory have it; a warm interpreter must start with it."""


class Limited(Project):
    """A project in which warm interpreters run jobs with limited memory too."""

    def env(self) -> dict[str, str]:
        return super().env() | VARIABLES


def cut(study: dict) -> None:
    """Leave one line with one batch. Samples are large, so that few of them fill the memory."""
    study["adapt"]["cpu"] = {
        "settings": {
            "loader": {"max_tokens": 512, "workers": 0},
            "train": {"precision": "fp32", "memory_gib": LIMIT_GIB},
        },
        "protocol": {"steps": STEPS, "warmup_steps": 1, "ceiling_s": 0.02},
    }
    kept = {"size": "tiny", "strategy": "ddp", "batch": LISTED}
    for name, level in kept.items():
        study["factors"][name] |= {"levels": [level], "requires": {}}
    study["factors"]["strategy"]["bundles"] = {"ddp": {}}
    study["baseline"] = kept
    study["tables"] = [table for table in study["tables"] if table["kind"] == "largest"]
    for part in ("figures", "claims", "published"):
        study[part] = []


@pytest.fixture
def searching(project: Project) -> Project:
    """A project with the study, cut to one line."""
    path = project.root / f"config/studies/{STUDY}.yaml"
    study = yaml.safe_load(path.read_text())
    cut(study)
    path.write_text(yaml.safe_dump(study, sort_keys=False))
    project.config(studies=[STUDY])
    return Limited(project.root, warm.warm(sys.executable, warm.MODULES, **VARIABLES))


def outcomes(project: Project) -> dict[int, Path]:
    """The outcome of each batch that was trained, in the order of the trainings."""
    found = (project.root / f"results/{STUDY}/cpu").glob("*/rep1/outcome.json")
    ordered = sorted(found, key=lambda path: json.loads(path.read_text())["started_at"])
    return {int(path.parts[-3].rpartition("=")[2]): path for path in ordered}


def statuses(project: Project) -> dict[int, str]:
    """The status of each batch in cells.csv."""
    with (project.root / f"results/{STUDY}/cells.csv").open(newline="") as stream:
        return {int(row["batch"]): row["status"] for row in csv.DictReader(stream)}


def test_the_batch_is_doubled_until_one_does_not_fit_and_then_the_gap_is_halved(searching):
    done = searching.run()
    assert done.returncode == 0, done.stdout
    assert done.stdout.count("search: 1 cell") == 2
    trained = outcomes(searching)
    doubled, between = 2 * LISTED, 3 * LISTED // 2
    assert list(trained) == [LISTED, doubled, between]
    found = statuses(searching)
    assert found.keys() == trained.keys()
    assert (found[LISTED], found[doubled]) == ("ok", "out_of_memory")
    assert found[between] in ("ok", "out_of_memory")
    cause = json.loads(trained[doubled].read_text())["cause"]
    assert "allocate memory" in cause, "it was tried, and really ran out of memory"

    fits = max(batch for batch, status in found.items() if status == "ok")
    page = (searching.root / "results/overview.html").read_text()
    assert f"CPU: a batch of {fits} fits (size = tiny, strategy = ddp)." in page
    assert "No level ran out of memory" not in page
    table = (searching.root / f"results/{STUDY}/tables/largest.html").read_text()
    assert table.index(f"<td>{fits}<") < table.index(f"<td>{fits + 1}<")

    before = {path: path.stat().st_mtime_ns for path in trained.values()}
    again = searching.run("--quiet")
    assert (again.returncode, again.stdout.strip()) == (0, "")
    assert {path: path.stat().st_mtime_ns for path in outcomes(searching).values()} == before
    assert statuses(searching) == found
    assert searching.planned() == {}, "plain Snakemake plans the same runs"
