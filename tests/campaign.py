"""A small campaign as a workflow leaves it: the golden run folders and their results."""

import re
import shutil
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[1]
STUDY = "bridgetower-dataloading"


def campaign(root: Path) -> Path:
    """A clone with the runs of a campaign, in which feedrate can be called."""
    root.mkdir(parents=True)
    (root / "Snakefile").write_text("")
    shutil.copytree(ROOT / "tests/golden/config", root / "config")
    file = root / f"config/studies/{STUDY}.yaml"
    study = yaml.safe_load(file.read_text())
    study["adapt"]["cpu"]["protocol"]["ceiling_s"] = 0.6  # with which the runs were made
    file.write_text(yaml.safe_dump(study, sort_keys=False))
    config = root / "config/config.yaml"
    text = re.sub(r"^studies: .*$", f"studies: [{STUDY}]", config.read_text(), flags=re.MULTILINE)
    config.write_text(text)
    for part in ("runs", "results"):
        shutil.copytree(ROOT / f"tests/golden/{part}/{STUDY}", root / part / STUDY)
    shutil.copytree(ROOT / "tests/golden/resources", root / "resources")
    (data,) = (root / "resources").rglob("data_report.json")
    for outcome in (root / "runs").rglob("outcome.json"):  # the folder had no identity then
        text = outcome.read_text().replace(
            "/generated/prepared/", f"/generated/{data.parent.name}/"
        )
        outcome.write_text(text)
    return root
