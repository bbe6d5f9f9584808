"""docs/architecture.md names every variable by which the processes tell each other things."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
VARIABLE = re.compile(r"FEEDRATE_[A-Z_]+[A-Z]")


def test_environment_variables_are_documented_and_nothing_else_is():
    code = [*(ROOT / "workflow").rglob("*.py"), *(ROOT / "workflow").rglob("*.smk")]
    used = {name for file in code for name in VARIABLE.findall(file.read_text(encoding="utf-8"))}
    told = set(VARIABLE.findall((ROOT / "docs/architecture.md").read_text(encoding="utf-8")))
    assert used == told
