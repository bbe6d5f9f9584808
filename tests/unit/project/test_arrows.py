"""Imports run downwards only, as docs/architecture.md draws them, and planning stays light."""

import re
import subprocess
import sys
from pathlib import Path

from feedrate.flow.digests import imported_modules

PACKAGE = Path(__file__).resolve().parents[3] / "workflow/feedrate"
FLOORS = (
    {"files", "paths", "variables"},
    {"config"},
    {"secrets"},
    {"endings"},
    {"cluster", "devices"},
    {"data"},
    {"models", "failure", "host_lock"},
    {"train", "quality"},
    {"infer"},
    {"results"},
    {"logs"},
    {"report"},
    {"tuning"},
    {"plan_attempts"},
    {"plan_inputs", "plan_quality", "plan_resources"},
    {"plan_view", "driver", "detect", "preflight", "profile_files"},
    {"console", "job_errors", "progress"},
    {"lost", "display", "planning", "summary", "changes"},
    {"commands"},
    {"__main__"},
)
"""Rooms and single modules, from the lowest; those of one floor do not know each other."""
FLOOR = {room: number for number, rooms in enumerate(FLOORS) for room in rooms}
EXCEPT = {("config.schemas", "results")}
"""The schema of a record is a contract like the others, and its type is no config."""
MODULES = sorted(PACKAGE.rglob("*.py"))
HEAVY = ("torch", "pandas", "matplotlib", "datasets", "transformers", "rich")


def test_every_room_has_its_floor():
    rooms = {file.relative_to(PACKAGE).parts[0].removesuffix(".py") for file in MODULES}
    assert rooms - {"__init__"} == set(FLOOR)


def test_the_drawing_shows_every_room():
    text = (PACKAGE.parents[1] / "docs/architecture.md").read_text(encoding="utf-8")
    drawing = text.split("```")[1]
    shown = set(re.findall(r"\w+", drawing))
    assert sorted(set(FLOOR) - shown - {"__main__"}) == []


def test_imports_run_downwards():
    upwards = []
    for file in MODULES:
        name = ".".join(file.relative_to(PACKAGE).with_suffix("").parts)
        room = name.partition(".")[0]
        modules = imported_modules(file.read_text(encoding="utf-8"))
        others = {module.split(".")[1] for module in modules if "." in module}
        for other in others - {room, "__version__"}:
            if FLOOR[other] >= FLOOR[room] and (name, other) not in EXCEPT:
                upwards.append(f"{name} imports {other}")
    assert upwards == []


def test_what_the_snakefile_imports_is_light():
    modules = "driver, lost, preflight, detect, paths, plan_view, profile_files"
    script = (
        f"import sys; from feedrate import {modules}; from feedrate.planning import dry_run\n"
        f"print([name for name in {HEAVY} if name in sys.modules])"
    )
    found = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert found.stdout.strip() == "[]"
