"""The study of loader libraries in its small form, cut to a few cells: from nothing to report."""

import csv
import shutil
from pathlib import Path

import pytest
import yaml
from mini_project import DATA, make_project

from feedrate_loaders.libraries._rules import missing_packages

EXTRAS = Path(__file__).resolve().parents[1]
STUDY = "loader-claims"
LOADERS = ("torch", "spdl", "webdataset")


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A project that has run a few cells of the study by one call."""
    made = make_project(tmp_path_factory.mktemp("study"))
    datasets = yaml.safe_load((made.root / "config/config.yaml").read_text())["datasets"]
    made.config(datasets=datasets | {"small": DATA | {"train": 100}})
    shutil.copytree(EXTRAS / "project", made.root, dirs_exist_ok=True)
    file = made.root / f"config/studies/{STUDY}.yaml"
    study = yaml.safe_load(file.read_text())
    study["factors"]["loader"]["levels"] = list(LOADERS)
    study["factors"]["workers"]["levels"] = [1]
    bundles = study["factors"]["loader"]["bundles"]
    study["factors"]["loader"] |= {"bundles": {name: bundles[name] for name in LOADERS}}
    study["factors"]["loader"].pop("requires")
    study |= {"baseline": {"loader": "torch", "workers": 1}, "exclude": [], "claims": []}
    study["adapt"]["cpu"]["settings"]["train"]["batch_size"] = 2
    short = {"steps": 3, "warmup_steps": 1, "repeats": 1, "ceiling_s": 0.02}
    study["adapt"]["cpu"]["protocol"] = short
    file.write_text(yaml.safe_dump(study, sort_keys=False))
    # Other programs of the machine disturb these short runs, which are not about speed.
    limits = "FOREIGN_CERTAIN, FOREIGN_POSSIBLE ="
    made.edit("workflow/feedrate/results/conformity.py", f"{limits} 0.25, 0.10", f"{limits} 9, 9")
    done = made.run("--study", STUDY)
    assert done.returncode == 0, done.stdout
    return made


def test_libraries_that_are_not_installed_are_unsupported_and_the_others_run(project):
    with (project.root / f"results/{STUDY}/results.csv").open(newline="") as stream:
        found = {row["cell"]: row["status"] for row in csv.DictReader(stream)}
    assert found == {
        f"loader={name}~workers=1": "unsupported" if missing_packages(name) else "ok"
        for name in LOADERS
    }


def test_the_table_of_statements_is_part_of_the_report(project):
    page = (project.root / f"results/{STUDY}/tables/loader_claims.html").read_text()
    assert "Does it hold here?" in page
    overview = (project.root / "report.html").read_text()
    assert "Where the claims hold" in overview
    assert project.planned("--config", f"studies=[{STUDY}]") == {}
