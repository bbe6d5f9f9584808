"""Every study in its small form, cut to a few cells and steps: one call, from nothing to report.
The search for the largest batch is in test_batch_search.py."""

import csv
import gzip
import html
import json
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from mini_project import DATA, Project, make_project, render_others

from feedrate.core.paths import TRACE_NAME

PROTOCOL = {"steps": 3, "warmup_steps": 1, "repeats": 1}
CEILINGS = {
    "tables/ceilings.html",
    "figures/stages.svg",
    "tables/stages.html",
}
"""Pages of what is measured after the timed steps."""
SMALL = 2
"""The batch of all runs."""


@dataclass(frozen=True)
class Cut:
    """What is left of a study: the levels that are run, and what becomes of cells on one CPU."""

    kept: dict[str, tuple]
    cells: dict[str, str]
    pages: tuple[str, ...]
    """The pages that the workflow makes. A test makes the others from the same results."""


STUDIES = {
    "gaudi-accelerations": Cut(
        kept={"network": ("bridgetower",), "technique": ("baseline", "eager")},
        cells={
            "network=bridgetower~technique=baseline": "ok",
            "network=bridgetower~technique=eager": "unsupported",
        },
        pages=("tables/window.html", "figures/ladder.svg", "tables/training.html"),
    ),
    "bridgetower-speedups": Cut(
        kept={"recipe": ("published", "sdpa", "bucket-view", "fp8"), "batch": (SMALL,)},
        cells={
            "recipe=published~batch=2": "ok",
            "recipe=sdpa~batch=2": "ok",
            "recipe=bucket-view~batch=2": "unsupported",
            "recipe=fp8~batch=2": "unsupported",
        },
        pages=("figures/ladder.svg", "tables/training.html"),
    ),
    "bridgetower-command": Cut(
        kept={"command": ("printed", "fp8")},
        cells={"command=printed": "ok", "command=fp8": "unsupported"},
        pages=("figures/ladder.svg", "tables/window.html", "tables/published.html"),
    ),
    "vit-speedups": Cut(
        kept={"size": ("tiny",), "technique": ("baseline", "fp8")},
        cells={
            "size=tiny~technique=baseline": "ok",
            "size=tiny~technique=fp8": "unsupported",
        },
        pages=("figures/ladder.svg", "tables/training.html", "tables/scaling.html"),
    ),
    "vit-profile": Cut(
        kept={"precision": ("fp32", "fp16")},
        cells={"precision=fp32": "ok", "precision=fp16": "unsupported"},
        pages=("tables/cells.html", "tables/stages.html", "figures/step_time.svg"),
    ),
    "flava-scaling": Cut(
        kept={"size": ("tiny", "10B"), "strategy": ("ddp", "fsdp", "ac-offload")},
        cells={
            "size=tiny~strategy=ddp": "ok",
            "size=tiny~strategy=fsdp": "unsupported",
            "size=tiny~strategy=ac-offload": "ok",
            **{f"size=10B~strategy={way}": "unsupported" for way in ("ddp", "fsdp", "ac-offload")},
        },
        pages=("figures/sizes.svg", "figures/ladder.svg", "tables/training.html"),
    ),
    "dataloading-levels": Cut(
        kept={"decode": ("host", "cache", "device"), "scaled": (False,), "workers": (0,)},
        cells={
            "decode=host~scaled=false~workers=0": "ok",
            "decode=cache~scaled=false~workers=0": "ok",
            "decode=device~scaled=false~workers=0": "unsupported",
        },
        pages=("figures/answer.svg", "tables/ceilings.html", "tables/speedup.html"),
    ),
}


def cut(project: Project, name: str) -> dict:
    """Leave out all other cells and pages, and make batches small; all else stays as it is. Returns
    the whole study."""
    path = project.root / f"config/studies/{name}.yaml"
    whole = yaml.safe_load(path.read_text())
    study = yaml.safe_load(path.read_text())
    own = study["adapt"]["cpu"]
    measured = CEILINGS.intersection(STUDIES[name].pages)
    own["protocol"] = PROTOCOL | {"ceiling_s": 0.02 if measured else 0}
    if "batch" in study["factors"]:
        study["baseline"]["batch"] = SMALL
        study["factors"]["batch"]["levels"].append(SMALL)
    else:
        own["settings"].setdefault("train", {})["batch_size"] = SMALL
    for factor, kept in STUDIES[name].kept.items():
        for level in study["factors"][factor]["levels"]:
            if level not in kept:
                left_out = {"levels": {factor: level}, "why": "The test is short."}
                study["exclude"] = [*study.get("exclude", []), left_out]
    for part in ("tables", "figures"):
        shown = [Path(made).stem for made in STUDIES[name].pages if made.startswith(part)]
        study[part] = [one for one in study[part] if one["name"] in shown]
    path.write_text(yaml.safe_dump(study, sort_keys=False))
    return whole


@pytest.fixture(scope="module")
def whole() -> dict[str, dict]:
    """The studies as they are committed, by name; filled when they are cut."""
    return {}


@pytest.fixture(scope="module")
def studies(tmp_path_factory, whole) -> Project:
    """A project in which the cut studies have been run by one call."""
    project = make_project(tmp_path_factory.mktemp("studies"))
    datasets = yaml.safe_load((project.root / "config/config.yaml").read_text())["datasets"]
    project.config(datasets=datasets | {"small": DATA | {"train": 100}})
    whole |= {name: cut(project, name) for name in STUDIES}
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


def test_a_trace_lies_in_its_folder_and_the_page_links_it(studies):
    run = str(run_of(studies, "vit-profile", "precision=fp32").relative_to(studies.root))
    with gzip.open(studies.root / run / TRACE_NAME) as stream:
        assert json.load(stream)["traceEvents"]
    page = (studies.root / "results/vit-profile/tables/cells.html").read_text()
    assert f'href="../../../{run.replace("=", "%3D")}/{TRACE_NAME}">{TRACE_NAME}</a>' in page


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


def shows_numbers(text: str) -> None:
    assert text.startswith(("<!doctype html>", "<?xml"))
    assert len(text) > 2000


@pytest.mark.parametrize("name", STUDIES)
def test_its_pages_are_made_of_the_numbers(studies, name):
    folder = studies.root / "results" / name
    for made in STUDIES[name].pages:
        shows_numbers((folder / made).read_text())
    study = yaml.safe_load((studies.root / f"config/studies/{name}.yaml").read_text())
    overview = html.unescape((studies.root / "report.html").read_text())
    assert study["question"].strip() in overview
    assert f"{study['title']}: all results" in overview


@pytest.mark.parametrize("name", STUDIES)
def test_its_other_pages_can_be_made_of_them_too(studies, whole, monkeypatch, name):
    monkeypatch.chdir(studies.root)
    others = render_others(name, whole[name])
    assert len(others) + len(STUDIES[name].pages) == sum(
        len(whole[name][part]) for part in ("tables", "figures")
    )
    for text in others:
        shows_numbers(text)


def test_what_ran_was_what_was_asked_for(studies):
    """Sharding in one process, its states on the host, told by the wrapped model itself."""
    run = run_of(studies, "flava-scaling", "size=tiny~strategy=ac-offload")
    events = [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]
    (told,) = [event for event in events if event["event"] == "strategy"]
    assert told["name"] == "fsdp"
    assert told["layers"] > 0
    for what in ("sharded", "offloaded", "checkpointed"):
        assert told[f"{what}_layers"] == told["layers"]


def test_then_there_is_nothing_to_do(studies):
    assert studies.planned("--config", f"studies=[{','.join(STUDIES)}]") == {}
