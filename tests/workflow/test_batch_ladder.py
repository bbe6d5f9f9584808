"""The ladder of batches, in real trainings under a limit of memory: the largest that fits, the
first that does not, and larger ones that are not tried."""

import csv

import pytest
import yaml
from mini_project import Project

STUDY = "flava-batch-search"
BATCHES = [2, 32, 48]
"""The first fits in the limit, the second does not by far."""
LIMIT_GIB = 0.38
CELL = "size=tiny~strategy=ddp~batch={}"


def cut(study: dict) -> dict:
    """The study with one line. Samples are large, so that few of them fill the memory."""
    study["adapt"]["cpu"] = {
        "settings": {
            "loader": {"max_tokens": 512, "workers": 0},
            "train": {"precision": "fp32", "memory_gib": LIMIT_GIB},
        },
        "protocol": {"steps": 2, "warmup_steps": 1, "ceiling_s": 0},
    }
    study["factors"]["batch"] |= {"levels": BATCHES, "requires": {}}
    study["factors"]["size"]["levels"] = ["tiny"]
    study["factors"]["size"]["requires"] = {}
    study["factors"]["strategy"] |= {"levels": ["ddp"], "requires": {}, "bundles": {"ddp": {}}}
    study["baseline"] = {"size": "tiny", "strategy": "ddp", "batch": BATCHES[0]}
    study.pop("claim", None)
    return study | {"claims": [], "published": []}


@pytest.fixture
def laddered(ready: Project) -> Project:
    """A project with the study, cut to one line."""
    path = ready.root / f"config/studies/{STUDY}.yaml"
    path.write_text(yaml.safe_dump(cut(yaml.safe_load(path.read_text())), sort_keys=False))
    ready.config(studies=[STUDY])
    return ready


def test_larger_batches_are_tried_until_one_does_not_fit(laddered):
    done = laddered.run()
    assert done.returncode == 0, done.stdout
    fits, tried, larger = (CELL.format(batch) for batch in BATCHES)
    with (laddered.root / f"results/{STUDY}/cells.csv").open(newline="") as stream:
        cells = {row["cell"]: row for row in csv.DictReader(stream)}
    status = {cell: row["status"] for cell, row in cells.items()}
    assert status == {fits: "ok", tried: "out_of_memory", larger: "out_of_memory"}
    assert "allocate memory" in cells[tried]["cause"], "it was tried, and really ran out of memory"
    assert cells[larger]["cause"].startswith(f"Not tried: {tried} ran out of memory")
    table = (laddered.root / f"results/{STUDY}/tables/largest.html").read_text()
    assert table.index(f">{BATCHES[0]}<") < table.index(f">{BATCHES[1]}<")
    assert laddered.planned() == {}
