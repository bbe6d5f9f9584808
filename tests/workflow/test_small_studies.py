"""Every study in its small form, cut to a few cells and steps: one call, from nothing to report."""

import csv
import gzip
import html
import json
import re
from dataclasses import dataclass

import pytest
import yaml
from mini_project import DATA, Project, make_project

from feedrate.config.spec import missing_packages
from feedrate.core.paths import TRACE_NAME

PROTOCOL = {"steps": 3, "warmup_steps": 1, "repeats": 1, "ceiling_s": 0.02}
BATCH = (2, 80, 96)
"""The first fits in the memory that the cut study gives; the second does not by far."""
SMALL = 2
"""The batch of all other runs."""


@dataclass(frozen=True)
class Cut:
    """What is left of a study: the levels that are run, and what becomes of cells on one CPU."""

    kept: dict[str, tuple]
    cells: dict[str, str]
    pages: tuple[str, ...]


STUDIES = {
    "gaudi-accelerations": Cut(
        kept={"technique": ("baseline", "eager", "last-batch-kept")},
        cells={
            "technique=baseline": "ok",
            "technique=eager": "unsupported",
            "technique=last-batch-kept": "ok",
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
        pages=("figures/ladder.svg", "tables/roofline.html", "tables/ceilings.html"),
    ),
    "bridgetower-command": Cut(
        kept={"command": ("printed", "fp8")},
        cells={"command=printed": "ok", "command=fp8": "unsupported"},
        pages=("figures/ladder.svg", "tables/window.html", "tables/published.html"),
    ),
    "vit-speedups": Cut(
        kept={"size": ("tiny",), "technique": ("baseline", "pooled-head", "fp8")},
        cells={
            "size=tiny~technique=baseline": "ok",
            "size=tiny~technique=pooled-head": "ok",
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
    "flava-batch-search": Cut(
        kept={"size": ("tiny",), "strategy": ("ddp",), "batch": BATCH},
        cells={
            "size=tiny~strategy=ddp~batch=2": "ok",
            "size=tiny~strategy=ddp~batch=80": "out_of_memory",
            "size=tiny~strategy=ddp~batch=96": "out_of_memory",
        },
        pages=("figures/reach.svg", "tables/largest.html"),
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
    "loader-claims": Cut(
        kept={"loader": ("torch", "torch-threads", "spdl", "webdataset"), "workers": (1,)},
        cells={
            "loader=torch~workers=1": "ok",
            "loader=torch-threads~workers=1": "ok",
            **{
                f"loader={library}~workers=1": "unsupported" if missing_packages(library) else "ok"
                for library in ("spdl", "webdataset")
            },
        },
        pages=("tables/loader_claims.html", "tables/ceilings.html", "figures/stages.svg"),
    ),
}


def cut(project: Project, name: str) -> None:
    """Leave out all other cells, and make batches small; all else stays as it is."""
    path = project.root / f"config/studies/{name}.yaml"
    study = yaml.safe_load(path.read_text())
    own = study["adapt"]["cpu"]
    own["protocol"] = PROTOCOL
    if kept := STUDIES[name].kept.get("batch"):
        levels = study["factors"]["batch"]["levels"]
        study["factors"]["batch"]["levels"] = sorted({*levels, *kept})
        study["baseline"]["batch"] = SMALL
    else:
        own["settings"].setdefault("train", {})["batch_size"] = SMALL
    if name == "flava-batch-search":
        own["settings"]["train"]["memory_gib"] = 1.75
        del study["search"]  # test_batch_search.py runs one
        study["claims"] = [c for c in study["claims"] if "largest" not in c["expression"]]
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


def test_a_trace_lies_beside_its_record_and_the_page_links_it(studies):
    run = "results/vit-profile/cpu/precision=fp32/rep1"
    with gzip.open(studies.root / run / TRACE_NAME) as stream:
        assert json.load(stream)["traceEvents"]
    assert (studies.root / run / "record.json").is_file()
    page = (studies.root / "results/vit-profile/tables/cells.html").read_text()
    assert f">{run}/{TRACE_NAME}</a>" in page


@pytest.mark.parametrize("name", STUDIES)
def test_every_cell_ends_as_it_should(studies, name):
    found = rows(studies, name)
    assert {cell: row["status"] for cell, row in found.items()} == STUDIES[name].cells, [
        row["cause"] for row in found.values()
    ]
    for cell, row in found.items():
        if row["status"] != "ok":
            continue
        assert float(row["samples_per_s"]) > 0
        assert float(row["loss_last"]) > 0
        path = studies.root / f"results/{name}/cpu/{cell}/rep1/record.json"
        record = json.loads(path.read_text())
        assert record["measurement"]["steps"] == PROTOCOL["steps"] - PROTOCOL["warmup_steps"]
        assert all(check["passed"] for check in record["checks"])


@pytest.mark.parametrize("name", STUDIES)
def test_its_pages_are_made_of_the_numbers(studies, name):
    folder = studies.root / "results" / name
    for page in STUDIES[name].pages:
        text = (folder / page).read_text()
        assert text.startswith(("<!doctype html>", "<?xml"))
        assert len(text) > 2000
    study = yaml.safe_load((studies.root / f"config/studies/{name}.yaml").read_text())
    overview = html.unescape((studies.root / "results/overview.html").read_text())
    assert study["question"].strip() in overview
    assert f"{study['title']}: all results" in overview


def test_what_ran_was_what_was_asked_for(studies):
    """Sharding in one process, its states on the host, told by the wrapped model itself."""
    run = studies.root / "results/flava-scaling/cpu/size=tiny~strategy=ac-offload/rep1"
    events = [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]
    (told,) = [event for event in events if event["event"] == "strategy"]
    assert told["name"] == "fsdp"
    assert told["layers"] > 0
    for what in ("sharded", "offloaded", "checkpointed"):
        assert told[f"{what}_layers"] == told["layers"]


def test_a_device_without_a_peak_has_a_reason_in_place_of_a_prediction(studies):
    folder = studies.root / "results/bridgetower-speedups"
    predicted = json.loads((folder / "predicted.json").read_text())
    assert {one["cell"] for one in predicted} == {
        cell for cell, status in STUDIES["bridgetower-speedups"].cells.items() if status == "ok"
    }
    page = html.unescape((folder / "tables/roofline.html").read_text())
    assert page.count("no prediction") == len(predicted)
    assert all(one["why"] in page for one in predicted)
    assert page.count("A sample of bridgetower-tiny, 32 tokens") == 1


def test_out_of_memory_is_a_result(studies):
    found = rows(studies, "flava-batch-search")
    assert "can't allocate memory" in found["size=tiny~strategy=ddp~batch=80"]["cause"]
    pruned = found["size=tiny~strategy=ddp~batch=96"]["cause"]
    assert pruned.startswith("Not tried: size=tiny~strategy=ddp~batch=80 ran out of memory")
    same = ("--config", f"studies=[{','.join(STUDIES)}]")
    assert studies.planned(*same) == {}, (
        "a cell that was not tried stays so while its reason stands"
    )
    page = (studies.root / "results/flava-batch-search/tables/largest.html").read_text()
    assert page.index("<td>2<") < page.index("can&#x27;t allocate memory")
    overview = (studies.root / "results/overview.html").read_text()
    assert "CPU: a batch of 2 fits (size = tiny, strategy = ddp)." in overview
    assert re.search(r"1 cell ran out of memory \([^)]*\), which counts as a result; 1 ", overview)
