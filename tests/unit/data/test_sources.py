"""A source is one file: its settings are checked and its rows fetched without any other edit."""

import json
import subprocess
import sys

import pytest
from drawings import drawing, encoded

from feedrate.data.manifest import read_index
from feedrate.data.tables import read_table

COPIES = """
import hashlib
from pathlib import Path

from feedrate.data.manifest import Fetched, RawFile

SETTINGS = {"path": ("str", "One image."), "copies": ("int", "Rows of it.", 2)}


def fetch(name, settings, raw):
    data = Path(settings.path).read_bytes()
    (raw / "one.jpg").write_bytes(data)
    file = RawFile(path="one.jpg", sha256=hashlib.sha256(data).hexdigest())
    rows = [
        {"image": "one.jpg", "split": "train", "caption": f"{name} {n}", "origin": str(n)}
        for n in range(settings.copies)
    ]
    return Fetched(rows=rows, files=[file], left_out=[])
"""

PROGRAM = """
import sys
import feedrate.data.sources as sources

sources.__path__.append(sys.argv.pop(1))
from feedrate.cli import jobs

sys.exit(jobs.run("fetch_dataset", sys.argv[1:]))
"""


@pytest.fixture
def fetch(tmp_path):
    """Fetch with the source `copies`, a file in a folder of its own."""
    folder = tmp_path / "more_sources"
    folder.mkdir()
    (folder / "copies.py").write_text(COPIES)
    (tmp_path / "a.jpg").write_bytes(encoded(drawing()))
    out = tmp_path / "raw/index.json"

    def run(**changes):
        settings = {"source": "copies", "path": str(tmp_path / "a.jpg"), **changes}
        words = ["--name", "mine", "--settings", json.dumps(settings), "--out", str(out)]
        command = [sys.executable, "-c", PROGRAM, str(folder), *words]
        return subprocess.run(command, capture_output=True, text=True, check=False), out

    return run


def test_a_source_from_another_folder_fetches(fetch):
    done, out = fetch()
    assert done.returncode == 0, done.stderr
    assert read_index(out).source == "copies"
    assert [row["caption"] for row in read_table(out.parent / "rows.parquet").rows] == [
        "mine 0",
        "mine 1",
    ]


@pytest.mark.parametrize("changes", [{"copies": "many"}, {"copy": 1}])
def test_its_settings_are_checked(fetch, changes):
    done, out = fetch(**changes)
    assert done.returncode == 1
    [line] = done.stderr.strip().splitlines()
    assert next(iter(changes)) in line
    assert not out.exists()
