"""The search for the largest batch, in real trainings under a limit of memory, and batches that are
not tried because a smaller one ran out of it."""

import copy
import csv
import json
import re
from pathlib import Path

import pytest
import yaml
from mini_project import Project, render_others

STUDY = "flava-batch-search"
LISTED = 2
"""The only batch that the study lists for the line that is searched. It fits."""
STEPS = 2
"""Optimizer steps of a run: the search goes no further than this many times the listed batch."""
LIMIT_GIB = 0.38
"""In the middle between what the listed batch takes (0.32) and what twice as much does (0.44)."""
TOO_LARGE, LARGER = 32, 48
"""Batches of another line, whose first does not fit by far."""
LINES = {"ddp": [LISTED], "ddp-ac": [TOO_LARGE, LARGER]}
CELL = "size=tiny~strategy={}~batch={}"


def cut(study: dict) -> dict:
    """The study with two lines and the pages of its largest batches. Samples are large, so that few
    of them fill the memory."""
    study["adapt"]["cpu"] = {
        "settings": {
            "loader": {"max_tokens": 512, "workers": 0},
            "train": {"precision": "fp32", "memory_gib": LIMIT_GIB},
        },
        "protocol": {"steps": STEPS, "warmup_steps": 1, "ceiling_s": 0},
    }
    batches = study["factors"]["batch"]["levels"]
    batches.insert(0, LISTED)
    study["baseline"]["batch"] = LISTED
    left_out = [
        {factor: level}
        for factor, kept in (("size", ["tiny"]), ("strategy", LINES))
        for level in study["factors"][factor]["levels"]
        if level not in kept
    ]
    left_out += [
        {"strategy": name, "batch": batch}
        for name, kept in LINES.items()
        for batch in batches
        if batch not in kept
    ]
    study["exclude"] = [{"levels": levels, "why": "The test is short."} for levels in left_out]
    shown = {"tables": ["largest"], "figures": ["reach"]}
    for part, names in shown.items():
        study[part] = [one for one in study[part] if one["name"] in names]
    return study


@pytest.fixture
def whole(ready: Project) -> dict:
    """The study as it is committed."""
    return yaml.safe_load((ready.root / f"config/studies/{STUDY}.yaml").read_text())


@pytest.fixture
def searching(ready: Project, whole: dict) -> Project:
    """A project with the study, cut to two lines."""
    path = ready.root / f"config/studies/{STUDY}.yaml"
    path.write_text(yaml.safe_dump(cut(copy.deepcopy(whole)), sort_keys=False))
    ready.config(studies=[STUDY])
    return ready


def outcomes(project: Project) -> dict[str, Path]:
    """The outcome of each cell that was trained, in the order of the trainings."""
    found = (project.root / f"results/{STUDY}/cpu").glob("*/rep1/outcome.json")
    ordered = sorted(found, key=lambda path: json.loads(path.read_text())["started_at"])
    return {path.parts[-3]: path for path in ordered}


def cells(project: Project) -> dict[str, dict[str, str]]:
    """The rows of cells.csv."""
    with (project.root / f"results/{STUDY}/cells.csv").open(newline="") as stream:
        return {row["cell"]: row for row in csv.DictReader(stream)}


def test_the_batch_is_doubled_until_one_does_not_fit_and_then_the_gap_is_halved(
    searching, whole, monkeypatch
):
    done = searching.run()
    assert done.returncode == 0, done.stdout
    assert done.stdout.count("search: 1 cell") == 2
    first, doubled, between = (
        CELL.format("ddp", batch) for batch in (LISTED, 2 * LISTED, 3 * LISTED // 2)
    )
    ended = outcomes(searching)
    assert [cell for cell in ended if "ddp~" in cell] == [first, doubled, between]
    found = cells(searching)
    status = {cell: row["status"] for cell, row in found.items() if row["status"] != "unsupported"}
    assert status.keys() == ended.keys()
    assert (status[first], status[doubled]) == ("ok", "out_of_memory")
    assert status[between] in ("ok", "out_of_memory")
    cause = json.loads(ended[doubled].read_text())["cause"]
    assert "allocate memory" in cause, "it was tried, and really ran out of memory"

    fits = 3 if status[between] == "ok" else LISTED
    page = (searching.root / "results/overview.html").read_text()
    assert f"CPU: a batch of {fits} fits (size = tiny, strategy = ddp)." in page
    assert "No level ran out of memory" not in page
    table = (searching.root / f"results/{STUDY}/tables/largest.html").read_text()
    assert table.index(f"<td>{fits}<") < table.index(f"<td>{fits + 1}<")
    larger_than_all_that_fits_is_not_tried(found, page)
    monkeypatch.chdir(searching.root)
    for text in render_others(STUDY, whole):
        assert text.startswith(("<!doctype html>", "<?xml"))

    before = {path: path.stat().st_mtime_ns for path in ended.values()}
    again = searching.run("--quiet")
    assert (again.returncode, again.stdout.strip()) == (0, "")
    assert {path: path.stat().st_mtime_ns for path in outcomes(searching).values()} == before
    assert cells(searching) == found
    assert searching.planned() == {}, "plain Snakemake plans the same runs"


def larger_than_all_that_fits_is_not_tried(found, page):
    """In the line that is not searched, since none of its batches fits."""
    tried, larger = (CELL.format("ddp-ac", batch) for batch in (TOO_LARGE, LARGER))
    assert "can't allocate memory" in found[tried]["cause"]
    assert found[larger]["cause"].startswith(f"Not tried: {tried} ran out of memory")
    out, pruned = found[tried]["status"], found[larger]["status"]
    assert (out, pruned) == ("out_of_memory", "out_of_memory")
    assert re.search(r"cells? ran out of memory \([^)]*\), which counts as a result; 1 ", page)
