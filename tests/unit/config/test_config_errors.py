"""Errors of the configuration: each names the file, the key and the value of the mistake."""

import json
import re
from pathlib import Path

import pytest

from feedrate.config.errors import ConfigError
from feedrate.config.plan import make_plan
from feedrate.config.values import read_yaml
from feedrate.flow.configuration import load, read_layers

ROOT = Path(__file__).resolve().parents[3]
MISTAKES = [
    pytest.param(file, mistake, id=f"{file}: {name}")
    for file, mistakes in read_yaml(ROOT / "tests/golden/mistakes.yaml").items()
    for name, mistake in mistakes.items()
]
LONG = "x" * 300
"""More letters than a file's name can have."""


def names(line, word):
    """Whether a line has this word, or this value, as a whole."""
    text = word if isinstance(word, str) and word else json.dumps(word).replace('"', "'")
    return re.search(rf"(?<![\w.]){re.escape(text)}(?![\w.])", line.replace("\\x00", "\0"))


@pytest.mark.parametrize(("file", "mistake"), MISTAKES)
def test_a_mistake_is_told_with_file_key_and_value(copy, monkeypatch, file, mistake):
    if "text" in mistake:
        copy.write(file, mistake["text"])
    for old, new in mistake.get("edit", {}).items():
        copy.edit(file, (old, new.replace("{long}", LONG)))
    studies = {"bridgetower-dataloading", "bridgetower-quality"}
    if file.startswith("studies/"):
        studies = {Path(file).stem}
    chosen = [] if file == "config.yaml" else [f"studies=[{', '.join(sorted(studies))}]"]
    monkeypatch.chdir(copy.root)
    with pytest.raises(ConfigError) as caught:
        make_plan(load(Path(), read_layers([], chosen)))
    first, *others = str(caught.value).splitlines()
    assert re.match(rf"config/{re.escape(mistake.get('file', file))}[,:]", first)
    wanted = [mistake[part] for part in ("at", "key", "value") if part in mistake]
    assert [word for word in wanted + mistake.get("allowed", []) if not names(first, word)] == []
    also = mistake.get("also", [])
    assert len(others) == len(also), others
    assert all(names(line, word) for line, word in zip(others, also, strict=True)), others
