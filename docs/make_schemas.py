"""Write the JSON schemas for editors, and the tables of docs/results.md:
`python docs/make_schemas.py`; with --check, only say which are out of date."""

import inspect
import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from feedrate.config.project import Devices
from feedrate.config.study import Study
from feedrate.config.workflow import WorkflowConfig
from feedrate.core.files import write_text
from feedrate.results.checks import CHECKS, ONLY_IF_FAILED
from feedrate.results.files import FILES, Column
from feedrate.results.parts import PARTS
from feedrate.results.schema import VALUES

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "workflow/schemas"
PAGE = ROOT / "docs/results.md"
_TABLE = re.compile(r"(<!-- generated: (\S+) -->\n)(?:\|.*\n)*")

KINDS: dict[str, tuple[Any, str]] = {
    "config": (WorkflowConfig, "config/config.yaml"),
    "devices": (Devices, "config/devices.yaml"),
    "study": (Study, "A file in config/studies/"),
}


def schema(name: str) -> dict[str, Any]:
    """The JSON schema (draft 2020-12) of one of `KINDS`."""
    kind, title = KINDS[name]
    made = msgspec.json.schema(kind)
    if name == "study":
        made["$defs"]["Study"]["properties"]["adapt"]["additionalProperties"] = {
            "type": "object",
            "properties": {
                "settings": _partial("Settings", made["$defs"]),
                "protocol": _partial("StudyProtocol", made["$defs"]),
                "bundles": {
                    "type": "object",
                    "description": "By factor and level: the settings that the level sets instead.",
                    "additionalProperties": made["$defs"]["Factor"]["properties"]["bundles"],
                },
            },
            "additionalProperties": False,
        }
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": title}
    return {**head, **json.loads(json.dumps(made), object_hook=_with_short_description)}


def _partial(name: str, definitions: dict[str, Any]) -> dict[str, Any]:
    """A reference to a type like `name`, in which every key is optional and has no default."""
    partial = f"Partial{name}"
    if partial not in definitions:
        properties: dict[str, Any] = {}
        definitions[partial] = {"title": partial, "type": "object", "additionalProperties": False}
        definitions[partial]["properties"] = properties
        for key, value in definitions[name]["properties"].items():
            nested = value.get("$ref", "").rpartition("/")[2]
            without = {word: inner for word, inner in value.items() if word != "default"}
            properties[key] = _partial(nested, definitions) if nested else without
    return {"$ref": f"#/$defs/{partial}"}


def _with_short_description(found: dict[str, Any]) -> dict[str, Any]:
    """Join the lines of a description: Python 3.13 indents docstrings differently from 3.11."""
    text = found.get("description")
    return found | {"description": " ".join(text.split())} if isinstance(text, str) else found


def path(name: str) -> Path:
    """The file of a schema."""
    return FOLDER / f"{name}.schema.json"


def page(written: str) -> str:
    """docs/results.md with its tables of columns and checks generated again."""
    return _TABLE.sub(lambda found: found[1] + _table(found[2]), written)


def _table(name: str) -> str:
    lines: list[Sequence[str]]
    if name == "checks":
        about = {check: " ".join((inspect.getdoc(f) or "").split()) for check, f in CHECKS.items()}
        lines = [("check", "passes if"), *(about | ONLY_IF_FAILED).items()]
    else:
        of_runs, is_runs = {*FILES["results.csv"]}, name == "results.csv"
        lines = [("column", "kind", "unit", "meaning", *["in cells.csv"] * is_runs)]
        families: dict[Sequence[str], list[Column]] = {}
        for column in FILES[name]:
            if is_runs or column not in of_runs:
                stem, unit = _FAMILY.sub("", _of_part(column.name)), column.unit
                repeats = VALUES[column.name].repeats if column.name in VALUES else ""
                last = [repeats] if is_runs else []
                families.setdefault((stem, column.kind, unit, *last), []).append(column)
        for (_, kind, unit, *last), columns in families.items():
            names = dict.fromkeys(_of_part(column.name) for column in columns)
            meanings = dict.fromkeys(column.description for column in columns)
            lines.append((", ".join(names), kind, unit, " ".join(meanings), *last))
    head, *rows = (f"| {' | '.join(line)} |\n" for line in lines)
    return f"{head}|{'---|' * len(lines[0])}\n{''.join(rows)}"


_FAMILY = re.compile(
    r"_(low|high|before|after|ci_low|ci_high)$|(?<=step_time_)(median|p95|p99)_s|(?<=mfu)_\w+"
    r"|(?<=^loss_)(first|last|end|shift|seeds)$|(?<=^stage_)[a-z]+(_[a-z]+)?_s$"
    r"|^(source|data|spec)(?=_digest)|^(out_of_memory|failed|invalid|missing)(?=_runs)"
    r"|^(data|copy)(?=_wait_share)|^cores_(busy|waited)(?=_share)"
)
"""What the names of a family of columns differ in: they share a row."""


def _of_part(column: str) -> str:
    """The name of a column, or of all that mean the same of another stage or part."""
    name = re.sub(r"^stage_\w+_(p95_s|cpu_s)$", r"stage_<stage>_\1", column)
    return re.sub(rf"^({'|'.join(PARTS)})_(ratio|samples_per_s)", r"<part>_\2", name)


def generated() -> dict[Path, str]:
    """All generated files, as text."""
    schemas = {
        path(name): json.dumps(schema(name), indent=2, ensure_ascii=False) + "\n" for name in KINDS
    }
    return schemas | {PAGE: page(PAGE.read_text(encoding="utf-8"))}


def stale() -> dict[Path, str]:
    """The generated files that are missing or out of date, as they should be."""
    return {
        file: wanted
        for file, wanted in generated().items()
        if not file.is_file() or file.read_text(encoding="utf-8") != wanted
    }


def main(words: Sequence[str]) -> int:
    """Write what is out of date; with --check write nothing and return 1 if anything is."""
    outdated = stale()
    for file, wanted in outdated.items():
        if "--check" in words:
            print(f"{file}: out of date; run python docs/make_schemas.py")
        else:
            write_text(file, wanted)
    return 1 if "--check" in words and outdated else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
