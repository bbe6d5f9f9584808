"""JSON schemas of all files that people or other programs read, and the tables of docs/results.md.

`python -m feedrate schemas` writes them from the types and the columns of the results; with
`--check` it only names those that are out of date.
"""

import inspect
import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from feedrate.config.project import Devices
from feedrate.config.spec import RunSpec
from feedrate.config.study import BenchmarkScore, Published, Study
from feedrate.config.workflow import WorkflowConfig
from feedrate.core.files import write_text
from feedrate.results.checks import CHECKS, ONLY_IF_FAILED
from feedrate.results.columns import FILES
from feedrate.results.record import Record

FOLDER = Path(__file__).resolve().parents[2] / "schemas"
PAGE = FOLDER.parents[1] / "docs/results.md"
_TABLE = re.compile(r"(<!-- generated: (\S+) -->\n)(?:\|.*\n)*")

KINDS: dict[str, tuple[Any, str]] = {
    "config": (WorkflowConfig, "config/config.yaml"),
    "devices": (Devices, "config/devices.yaml"),
    "study": (Study, "A file in config/studies/"),
    "published": (Published, "A row of a CSV file in config/published/"),
    "scores": (BenchmarkScore, "A row of a CSV file of `published_scores` in config/published/"),
    "spec": (RunSpec, "spec.json of a run"),
    "record": (Record, "record.json of a run"),
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
                    "description": "Factor to level to the settings that it sets there instead.",
                    "additionalProperties": made["$defs"]["Factor"]["properties"]["bundles"],
                },
            },
            "additionalProperties": False,
        }
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": title}
    return {**head, **_in_one_line(made)}


def text(name: str) -> str:
    """The schema's file, as text."""
    return json.dumps(schema(name), indent=2, ensure_ascii=False) + "\n"


def path(name: str) -> Path:
    """Where the schema's file lies."""
    return FOLDER / f"{name}.schema.json"


def page(written: str) -> str:
    """docs/results.md with its tables of columns and checks made anew."""
    return _TABLE.sub(lambda found: found[1] + _table(found[2]), written)


def _table(name: str) -> str:
    if name == "checks":
        told = {check: " ".join((inspect.getdoc(f) or "").split()) for check, f in CHECKS.items()}
        return _markdown(("check", "passes if"), (told | ONLY_IF_FAILED).items())
    return _markdown(("column", "kind", "unit", "meaning"), FILES[name])


def _markdown(head: Sequence[str], rows: Iterable[Iterable[str]]) -> str:
    first, rule = " | ".join(head), "---|" * len(head)
    return f"| {first} |\n|{rule}\n" + "".join(f"| {' | '.join(row)} |\n" for row in rows)


def generated() -> dict[Path, str]:
    """All generated files, as text."""
    files = {path(name): text(name) for name in KINDS}
    return files | {PAGE: page(PAGE.read_text(encoding="utf-8"))}


def stale() -> list[Path]:
    """The files that are missing or differ from what the types say."""
    return [
        file
        for file, wanted in generated().items()
        if not file.is_file() or file.read_text(encoding="utf-8") != wanted
    ]


def write_schemas(*, check: bool = False) -> int:
    """Write the schemas and tables; with --check write nothing and fail if one is out of date."""
    if not check:
        for file, content in generated().items():
            write_text(file, content)
        return 0
    outdated = stale()
    for file in outdated:
        print(f"{file}: out of date; run python -m feedrate schemas")
    return 1 if outdated else 0


def _in_one_line(value: Any) -> Any:
    """Descriptions without line breaks: Python 3.13 indents docstrings otherwise than 3.11."""
    if isinstance(value, list):
        return [_in_one_line(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {
        key: " ".join(inner.split())
        if key == "description" and isinstance(inner, str)
        else _in_one_line(inner)
        for key, inner in value.items()
    }


def _partial(name: str, definitions: dict[str, Any]) -> dict[str, Any]:
    """A reference to the type with every key optional and without defaults: a part of it."""
    partial = f"Partial{name}"
    if partial not in definitions:
        source = definitions[name]
        definitions[partial] = {"title": partial, "type": "object", "additionalProperties": False}
        definitions[partial]["properties"] = {
            key: _partial_of(value, definitions) for key, value in source["properties"].items()
        }
    return {"$ref": f"#/$defs/{partial}"}


def _partial_of(value: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
    reference = value.get("$ref")
    if reference:
        return _partial(reference.rsplit("/", 1)[-1], definitions)
    return {key: inner for key, inner in value.items() if key != "default"}
