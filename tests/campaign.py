"""A small campaign as a workflow leaves it: the golden run folders, and few pages of them."""

import contextlib
import re
import shutil
import zipfile
from pathlib import Path

import yaml

from feedrate.cli.redraw import derived, redraw
from feedrate.config.project import load_project
from feedrate.flow.view import PlanView

ROOT = Path(__file__).resolve().parents[1]
STUDY = "bridgetower-dataloading"
PAGES = {"tables": ("cells", "claims"), "figures": ("throughput",)}
"""The pages of the study that are drawn; others take time and test nothing more."""


def clone(root: Path) -> Path:
    """A folder in which feedrate can be called, without any results."""
    root.mkdir(parents=True)
    (root / "Snakefile").write_text("")
    for folder in ("report/captions", "profiles"):
        shutil.copytree(ROOT / folder, root / folder)
    shutil.copytree(ROOT / "tests/golden/config", root / "config")
    file = root / f"config/studies/{STUDY}.yaml"
    study = yaml.safe_load(file.read_text())
    for part, names in PAGES.items():
        study[part] = [page for page in study[part] if page["name"] in names]
    study["adapt"]["cpu"]["protocol"]["ceiling_s"] = 0.6  # with which the runs were made
    file.write_text(yaml.safe_dump(study, sort_keys=False))
    config = root / "config/config.yaml"
    text = re.sub(r"^studies: .*$", f"studies: [{STUDY}]", config.read_text(), flags=re.MULTILINE)
    config.write_text(text)
    return root


def edit(root: Path, pattern: str, old: str, new: str) -> None:
    """Replace a text in files of all runs."""
    for file in (root / "results").rglob(pattern):
        file.write_text(file.read_text().replace(old, new))


def campaign(root: Path, **changes: tuple[str, str]) -> Path:
    """A clone with results. `changes`: texts to replace in all files of events or outcomes; all
    that follows from them is made after that."""
    clone(root)
    shutil.copytree(ROOT / "tests/golden/results" / STUDY, root / "results" / STUDY)
    shutil.copytree(ROOT / "tests/golden/resources", root / "resources")
    (root / "logs").mkdir()
    (root / "logs/parse.log").write_text("parsed\n")
    for name, (old, new) in changes.items():
        edit(root, f"{name}*.json*", old, new)
    for file in derived(root):
        file.unlink()
    with contextlib.chdir(root):
        config = yaml.safe_load(Path("config/config.yaml").read_text())
        redraw(PlanView(load_project(root, config), root), ROOT)
    return root


def rewrite(archive: Path, out: Path, changes: dict[str, bytes | None]) -> Path:
    """A copy of a zip file with files added, changed or (None) left out."""
    with zipfile.ZipFile(archive) as old, zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as new:
        for name in {**dict.fromkeys(old.namelist()), **changes}:
            content = changes[name] if name in changes else old.read(name)
            if content is not None:
                new.writestr(name, content)
    return out
