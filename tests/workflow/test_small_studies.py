"""Studies in their small form, cut to a few cells and steps: one call, from nothing to report. The
search for the largest batch is in test_batch_ladder.py."""

import csv
import gzip
import html
import json
from dataclasses import dataclass

import pytest
import yaml
from mini_project import DATA, MINI, Project, make_project

from feedrate.core.paths import TRACE_NAME

PROTOCOL = {"steps": 3, "warmup_steps": 1, "repeats": 1}
SMALL = 2
"""The batch of all runs."""


@dataclass(frozen=True)
class Cut:
    """What is left of a study: the levels that are run, what becomes of cells on one CPU, and some
    files of its results."""

    kept: dict[str, tuple]
    cells: dict[str, str]
    shown: tuple[str, ...]
    ceiling_s: float = 0


STUDIES = {
    "vit-profile": Cut(
        kept={"precision": ("fp32", "fp16")},
        cells={"precision=fp32": "ok", "precision=fp16": "unsupported"},
        shown=("tables/cells.html", "tables/stages.html"),
        ceiling_s=0.02,
    ),
    "flava-scaling": Cut(
        kept={"size": ("tiny", "10B"), "strategy": ("ddp", "fsdp", "ac-offload")},
        cells={
            "size=tiny~strategy=ddp": "ok",
            "size=tiny~strategy=fsdp": "unsupported",
            "size=tiny~strategy=ac-offload": "ok",
            **{f"size=10B~strategy={way}": "unsupported" for way in ("ddp", "fsdp", "ac-offload")},
        },
        shown=("tables/cells.html",),
    ),
    "dataloading-levels": Cut(
        kept={"decode": ("host", "cache", "device"), "scaled": (False,), "workers": (0,)},
        cells={
            "decode=host~scaled=false~workers=0": "ok",
            "decode=cache~scaled=false~workers=0": "ok",
            "decode=device~scaled=false~workers=0": "unsupported",
        },
        shown=("tables/settings.html", "tables/stages.html", "figures/answer.svg"),
        ceiling_s=0.02,
    ),
}
"""The others have the same models and settings in other combinations: the plans of all are in
test_profiles.py, results of more in tests/golden/studies."""


def cut(project: Project, name: str) -> None:
    """Leave out all other cells, and make batches small; all else stays as it is."""
    path = project.root / f"config/studies/{name}.yaml"
    study = yaml.safe_load(path.read_text())
    own = study["adapt"]["cpu"]
    own["protocol"] = PROTOCOL | {"ceiling_s": STUDIES[name].ceiling_s}
    own["settings"].setdefault("train", {})["batch_size"] = SMALL
    own["settings"].setdefault("loader", {})["max_tokens"] = MINI["settings"]["loader"][
        "max_tokens"
    ]
    for factor, kept in STUDIES[name].kept.items():
        for level in study["factors"][factor]["levels"]:
            if level not in kept:
                left_out = {"levels": {factor: level}, "why": "The test is short."}
                study["exclude"] = [*study.get("exclude", []), left_out]
    path.write_text(yaml.safe_dump(study, sort_keys=False))


@pytest.fixture(scope="module")
def studies(tmp_path_factory) -> Project:
    """A project in which the cut studies have been run by one call."""
    project = make_project(tmp_path_factory.mktemp("studies"))
    datasets = yaml.safe_load((project.root / "config/config.yaml").read_text())["datasets"]
    project.config(datasets=datasets | {"small": DATA | {"train": 100}})
    for name in STUDIES:
        cut(project, name)
    done = project.run(*(word for name in STUDIES for word in ("--study", name)))
    assert done.returncode == 0, done.stdout
    return project


def rows(studies, name):
    path = studies.root / f"results/{name}/results.csv"
    with path.open(newline="") as stream:
        return {row["cell"]: row for row in csv.DictReader(stream)}


def run_of(studies, name, cell):
    (run,) = (studies.root / f"runs/{name}/cpu/{cell}").glob("rep1-*/")
    return run


def test_a_trace_lies_in_its_folder(studies):
    with gzip.open(run_of(studies, "vit-profile", "precision=fp32") / TRACE_NAME) as stream:
        assert json.load(stream)["traceEvents"]


@pytest.mark.parametrize("name", STUDIES)
def test_every_cell_ends_as_it_should(studies, name):
    found = rows(studies, name)
    lines = (studies.root / f"results/{name}/cpu/records.jsonl").read_text().splitlines()
    records = {record["spec"]["cell"]: record for record in map(json.loads, lines)}
    assert {cell: row["status"] for cell, row in found.items()} == STUDIES[name].cells, [
        row["cause"] for row in found.values()
    ]
    for cell, row in found.items():
        if row["status"] != "ok":
            continue
        assert float(row["samples_per_s"]) > 0
        assert float(row["loss_last"]) > 0
        record = records[cell]
        assert record["measurement"]["steps"] == PROTOCOL["steps"] - PROTOCOL["warmup_steps"]
        assert all(check["passed"] for check in record["checks"])


@pytest.mark.parametrize("name", STUDIES)
def test_its_results_are_shown(studies, name):
    for file in STUDIES[name].shown:
        assert (studies.root / f"results/{name}/{file}").stat().st_size > 2000
    study = yaml.safe_load((studies.root / f"config/studies/{name}.yaml").read_text())
    page = html.unescape((studies.root / "report.html").read_text())
    assert study["title"] in page


def test_what_ran_was_what_was_asked_for(studies):
    """Sharding in one process, its states on the host, told by the wrapped model itself."""
    run = run_of(studies, "flava-scaling", "size=tiny~strategy=ac-offload")
    events = [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]
    (told,) = [event for event in events if event["event"] == "strategy"]
    assert told["name"] == "fsdp"
    assert told["layers"] > 0
    for what in ("sharded", "offloaded", "checkpointed"):
        assert told[f"{what}_layers"] == told["layers"]
