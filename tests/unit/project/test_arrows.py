"""Imports run downwards only, as docs/architecture.md draws them, and planning stays light."""

import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

from feedrate.flow.identity import digest_module

PACKAGE = Path(__file__).resolve().parents[3] / "workflow/feedrate"
ROOMS = (
    "core",
    "config",
    "devices",
    "data",
    "loading",
    "models",
    "jobs",
    "results",
    "report",
    "flow",
    "cli",
)
"""From the lowest: a room imports from those before it only."""
RANK = {room: number for number, room in enumerate((*ROOMS, "__main__"))}
MODULES = sorted(PACKAGE.rglob("*.py"))
HEAVY = ("torch", "pandas", "matplotlib", "datasets", "transformers", "rich")


def test_the_package_is_eleven_rooms_and_an_entry():
    found = {file.relative_to(PACKAGE).parts[0] for file in MODULES}
    assert found == {*ROOMS, "__init__.py", "__main__.py"}
    assert all((PACKAGE / room / "__init__.py").exists() for room in ROOMS)


def test_the_drawing_shows_every_room():
    text = (PACKAGE.parents[1] / "docs/architecture.md").read_text(encoding="utf-8")
    drawing = text.split("```")[1]
    assert sorted(set(ROOMS) - set(re.findall(r"\w+", drawing))) == []


def test_imports_run_downwards():
    upwards = []
    for file in MODULES:
        name = ".".join(file.relative_to(PACKAGE).with_suffix("").parts)
        room = name.partition(".")[0]
        _, modules = digest_module(file)
        others = {module.split(".")[1] for module in modules if module.startswith("feedrate.")}
        upwards += [
            f"{name} imports {other}"
            for other in others - {room, "__version__"}
            if RANK[other] >= RANK[room]
        ]
    assert upwards == [], "a room imports from those before it in ROOMS only: move code down"


def test_no_file_is_longer_than_a_chapter():
    lines = {str(file): file.read_text(encoding="utf-8").count("\n") for file in MODULES}
    assert [file for file, count in lines.items() if count > 350] == [], "divide it"


def test_what_the_snakefile_imports_is_light():
    script = (
        "import sys; from feedrate.config import plan; from feedrate.devices import host\n"
        "from feedrate.flow import driver, graph\n"
        f"print([name for name in {HEAVY} if name in sys.modules])"
    )
    found = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert found.stdout.strip() == "[]"


def test_each_test_file_has_a_name_of_its_own():
    """pytest imports files that are in no package by their name alone."""
    folders = (PACKAGE.parents[1] / name for name in ("tests", "extras/loaders/tests"))
    files = (file for folder in folders for file in folder.rglob("*.py"))
    names = Counter(f.name for f in files if not (f.parent / "__init__.py").exists())
    shared = [name for name, count in names.items() if count > 1 and name != "conftest.py"]
    assert shared == [], "rename all but one"
