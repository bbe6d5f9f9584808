"""Strangers' archives: a sentence names each damaged or hostile file."""

import json
from pathlib import Path

import msgspec
import pytest
from record_builder import make_record, write_records

from campaign import STUDY, clone
from feedrate.cli.verify import check_documents, differences, read_project
from feedrate.config.project import load_project
from feedrate.config.values import read_yaml
from feedrate.core.errors import ExpectedError
from feedrate.results.record import MadeFrom


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A configuration as archives hold it."""
    root = clone(tmp_path_factory.mktemp("made") / "project")
    return msgspec.to_builtins(load_project(root, read_yaml(root / "config/config.yaml")))


@pytest.mark.parametrize("table", ["studies", "published", "measured"])
def test_no_name_in_a_project_leads_out_of_the_folder(project, tmp_path, table):
    hostile = {"../../x": {"measured": ["cpu"]}.get(table, project[table].get(STUDY))}
    (tmp_path / "project.json").write_text(json.dumps(project | {table: hostile}))
    with pytest.raises(ExpectedError, match=table):
        read_project(tmp_path, tmp_path / "a.zip")
    hostile = project | {"measured": {STUDY: ["../../x"]}}
    (tmp_path / "project.json").write_text(json.dumps(hostile))
    with pytest.raises(ExpectedError, match="measured"):
        read_project(tmp_path, tmp_path / "a.zip")


@pytest.mark.parametrize("content", [b"[" * 100_000 + b"]" * 100_000, b'{"config": "\\ud800"}'])
def test_a_project_that_no_parser_reads_is_told(tmp_path, content):
    (tmp_path / "project.json").write_bytes(content)
    with pytest.raises(ExpectedError, match=r"project\.json"):
        read_project(tmp_path, tmp_path / "a.zip")


DAMAGED = {
    "s/cpu/a/rep1/record.json": [b'{"a": 1', b'{"a": "\xff"}', b"[" * 100_000],
    "results.parquet": [b"PAR1"],
    "cells.csv": [b"a,b\n\xff,1\n", b'a,b\n"' + b"x" * 200_000 + b'",1\n'],
    "overview.html": [b"<p>\xff</p>"],
}


@pytest.mark.parametrize(("name", "content"), [(n, c) for n, many in DAMAGED.items() for c in many])
def test_a_damaged_file_is_one_line_and_hides_no_other(tmp_path, name, content):
    given, made = tmp_path / "given", tmp_path / "made"
    files = {f"results/{name}": (content, b"1"), "results/s/claims.csv": (b"a\n1\n", b"a\n2\n")}
    for file, sides in files.items():
        for folder, one in zip((given, made), sides, strict=True):
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            (folder / file).write_bytes(one)
    damaged, other = sorted(differences(given, made), key=lambda line: "claims.csv" in line)
    assert damaged.startswith(f"results/{name}: cannot be read: ")
    assert other.startswith("results/s/claims.csv: row")


def test_a_document_that_stops_its_reader_hides_no_other(tmp_path):
    made_from = MadeFrom(files={"a\0b": "0"})
    records = [msgspec.structs.replace(make_record(), made_from=made_from), make_record()]
    one, two = write_records(tmp_path / "results", records)
    Path(two).unlink()
    Path(two).mkdir()
    told = list(check_documents(tmp_path))
    assert [line.split(": cannot be read")[0] for line in told] == [
        str(Path(name).relative_to(tmp_path)) for name in (one, two)
    ]
