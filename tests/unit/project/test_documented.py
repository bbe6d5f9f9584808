"""Names that several programs share are typed once, and told in docs/architecture.md."""

import re
from pathlib import Path

from msgspec.structs import asdict

from feedrate.config.study import Thresholds
from feedrate.core import paths, variables

ROOT = Path(__file__).resolve().parents[3]
VARIABLE = re.compile(r"FEEDRATE_[A-Z_]+[A-Z]")


CODE = [file for end in ("*.py", "*.smk") for file in [*(ROOT / "workflow").rglob(end)]] + [
    ROOT / "Snakefile"
]
HOLDER = ROOT / "workflow/feedrate/core/variables.py"


def test_environment_variables_are_documented_and_nothing_else_is():
    used = {name for file in CODE for name in VARIABLE.findall(file.read_text(encoding="utf-8"))}
    told = set(VARIABLE.findall((ROOT / "docs/architecture.md").read_text(encoding="utf-8")))
    assert used == told, "docs/architecture.md describes the variables that the code uses"


def test_their_names_are_typed_in_one_module():
    typing = [file for file in CODE if VARIABLE.search(file.read_text(encoding="utf-8"))]
    assert typing == [HOLDER], f"add it to {HOLDER.name}, and use that name"
    told = {name: value for name, value in vars(variables).items() if name.isupper()}
    assert told == {name: f"FEEDRATE_{name}" for name in told}


def test_names_of_a_runs_files_are_typed_in_one_module():
    names = [name for key, name in vars(paths).items() if key.endswith("_NAME") and "." in name]
    typed = [
        (file.name, name)
        for file in CODE
        for name in names
        if f'"{name}"' in file.read_text(encoding="utf-8")
        and file.name != "paths.py"
        and file.parent.name != "formats"  # plug-ins declare literals
    ]
    assert len(names) == 5
    assert typed == [], "use the name in core/paths.py"


def test_each_of_them_is_used():
    code = "".join(file.read_text(encoding="utf-8") for file in CODE if file != HOLDER)
    unused = [name for name in vars(variables) if name.isupper() if f"variables.{name}" not in code]
    assert unused == [], f"remove it from {HOLDER.name}"


def test_every_threshold_is_documented_with_its_default():
    text = (ROOT / "config/README.md").read_text(encoding="utf-8")
    section = text.partition("### Thresholds\n")[2].partition("\n#")[0]
    rows = re.findall(r"^\| `(\w+)` \| ([\d.]+) \| .{20,}", section, re.M)
    assert {name: float(default) for name, default in rows} == asdict(Thresholds()), (
        "config/README.md, Thresholds, has a row for each: | `name` | default | meaning |"
    )
