import http.server
import json
import os
import subprocess
import sys
import threading
from hashlib import sha256

import datasets
import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from drawings import drawing, encoded
from huggingface_hub.file_download import _create_symlink
from huggingface_hub.utils._shared_blobs import publish_blob_to_shared_store

from feedrate.config.errors import ConfigError
from feedrate.config.workflow import Dataset
from feedrate.data.fetch import fetch_dataset
from feedrate.data.manifest import DataError, read_index
from feedrate.data.tables import read_table

HUB = {"source": "hub", "name": "someone/cartoons", "config": "matching", "revision": "main"}
COMMIT = "0123456789abcdef0123456789abcdef01234567"
README = """---
configs:
- config_name: matching
  data_files:
  - {split: train, path: matching/train.parquet}
  - {split: validation, path: matching/validation.parquet}
  - {split: extra, path: matching/train.parquet}
---
"""


def hub_folder(root):
    """A dataset in the hub's layout: encoded images inside Parquet, some of them the same."""
    images = [encoded(drawing(shade=shade)) for shade in (0, 0, 90)] + [b"no image"]
    names = ("0.PNG", "1.jpeg", "zip://2.jpeg::once/in/an/archive.zip", "3.jpeg")
    rows = [
        {
            "image": {"bytes": data, "path": names[number]},
            "contest_number": 500 + number,
            "image_description": f"drawing {number}",
            "caption_choices": list("abcde"),
            "questions": ["why?"],
            "votes": number,
        }
        for number, data in enumerate(images)
    ]
    features = json.dumps({"info": {"features": {"image": {"_type": "Image"}}}})
    table = pa.Table.from_pylist(rows).replace_schema_metadata({"huggingface": features})
    (root / "matching").mkdir(parents=True)
    pq.write_table(table, root / "matching/train.parquet")
    pq.write_table(table.slice(2, 1), root / "matching/validation.parquet")
    (root / "README.md").write_text(README)
    return root


@pytest.fixture
def fetch(tmp_path):
    """Run the real command with a hub at `endpoint` and an empty home; nothing else is reached."""

    def run(endpoint="http://127.0.0.1:9", **changes):
        out = tmp_path / "raw/index.json"
        environment = {
            **os.environ,
            "HF_HOME": str(tmp_path / "home"),
            "HF_ENDPOINT": endpoint,
            "HF_HUB_DISABLE_TELEMETRY": "1",
        }
        environment.pop("HF_TOKEN", None)
        command = [sys.executable, "-m", "feedrate", "fetch_dataset", "--name", "cartoons"]
        command += ["--settings", json.dumps(HUB | changes), "--out", str(out)]
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=120, check=False
        )
        return done, out

    return run


@pytest.fixture
def fetch_here(tmp_path, monkeypatch):
    """Fetch in this process, which asks no hub for a local folder."""
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path / "cache"))
    out = tmp_path / "raw/index.json"

    def run(folder, **changes):
        settings = msgspec.convert(HUB | changes | {"name": str(folder)}, Dataset)
        fetch_dataset("cartoons", settings, out)
        return read_index(out), out

    return run


def test_a_local_folder_in_hub_layout_is_read_without_decoding(fetch_here, tmp_path):
    folder = hub_folder(tmp_path / "copy")
    _, out = fetch_here(folder, columns={"caption": "image_description", "rank": "votes"})
    index, rows = read_index(out), read_table(out.parent / "rows.parquet").rows
    assert [row["split"] for row in rows] == ["train"] * 4 + ["validation"]
    assert [row["caption"] for row in rows[:2]] == ["drawing 0", "drawing 1"]
    assert (rows[1]["contest_number"], rows[1]["rank"]) == (501, 1)
    assert rows[1]["caption_choices"] == list("abcde")
    assert len(index.files) == 3
    assert rows[0]["image"] == rows[1]["image"]
    assert (out.parent / rows[0]["image"]).read_bytes() == encoded(drawing())
    assert (out.parent / rows[3]["image"]).read_bytes() == b"no image"
    [extra] = index.left_out
    assert (extra.path, extra.rows) == ("extra", 4)
    assert (index.images_read, index.rows_read) == (3, 9)


def table_of_names(folder, *named):
    """A dataset in the hub's layout whose table names files in place of their bytes."""
    features = json.dumps({"info": {"features": {"image": {"_type": "Image"}}}})
    rows = [{"image": {"bytes": None, "path": str(name)}, "caption": "a"} for name in named]
    image = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    schema = pa.schema([("image", image), ("caption", pa.string())], {"huggingface": features})
    table = pa.Table.from_pylist(rows, schema)
    (folder / "matching").mkdir(parents=True)
    pq.write_table(table, folder / "matching/train.parquet")
    (folder / "README.md").write_text(README.replace("validation.parquet", "train.parquet"))


def test_a_table_reads_no_file_outside_its_dataset(fetch_here, tmp_path):
    (tmp_path / "secret").write_bytes(b"not yours")
    folder = tmp_path / "copy"
    (folder / "own").mkdir(parents=True)
    (folder / "own/a.png").write_bytes(encoded(drawing()))
    (folder / "own/link.png").symlink_to(tmp_path / "secret")
    outside = (tmp_path / "secret", "../secret", "own/link.png", "/dev/zero", "a\0b")
    table_of_names(folder, folder / "own/a.png", "own/a.png", *outside)
    index, out = fetch_here(folder, columns={"caption": "caption"})
    rows = read_table(out.parent / "rows.parquet").rows
    assert [row["origin"] for row in rows if row["split"] == "train"] == [
        "train, row 1",
        "train, row 2",
    ]
    assert [file.sha256 for file in index.files] == [sha256(encoded(drawing())).hexdigest()]
    lost = [entry for entry in index.left_out if entry.path.startswith("train")]
    assert [entry.path for entry in lost] == [f"train, row {n}" for n in range(3, 8)]
    assert {entry.reason for entry in lost} == {"outside the folder", "missing file"}


def cached_dataset(hub):
    """A copy in the hub's cache with the client's own links: a file goes to the blobs that all
    repositories share. Its table has lists of captions."""
    repository = hub / "datasets--someone--cartoons"
    snapshot = repository / "snapshots" / COMMIT
    lines = [{"file_name": f"{n}.png", "words": [f"a {n}", f"b {n}"]} for n in range(3)]
    files = {f"{n}.png": encoded(drawing(shade=n), "PNG") for n in range(3)}
    files["metadata.jsonl"] = "\n".join(map(json.dumps, lines)).encode()
    (repository / "blobs").mkdir(parents=True)
    (repository / "refs").mkdir()
    (repository / "refs/main").write_text(COMMIT)
    for name, data in files.items():
        digest = sha256(data).hexdigest()
        blob, file = repository / "blobs" / digest, snapshot / "train" / name
        blob.write_bytes(data)
        options = {"cache_dir": hub, "expected_size": len(data), "replace_existing": False}
        assert publish_blob_to_shared_store(blob_path=str(blob), xet_hash=digest, **options)
        file.parent.mkdir(parents=True, exist_ok=True)
        _create_symlink(str(blob), str(file), new_blob=False)
    return snapshot


def test_files_that_datasets_share_in_the_hubs_cache_are_read(fetch, tmp_path):
    (tmp_path / "secret").write_bytes(encoded(drawing(), "PNG"))
    snapshot = cached_dataset(tmp_path / "home/hub")
    assert "datasets--" not in str((snapshot / "train/0.png").resolve())
    (snapshot / "train/2.png").unlink()
    (snapshot / "train/2.png").symlink_to(tmp_path / "secret")
    done, out = fetch(config=None, columns={"caption": "words"})
    assert done.returncode == 0, done.stderr
    rows, index = read_table(out.parent / "rows.parquet").rows, read_index(out)
    assert [row["caption"] for row in rows] == ["a 0", "b 0", "a 1", "b 1"]
    assert [entry.reason for entry in index.left_out] == ["outside the folder"]
    assert (index.images_read, len(index.files), index.revision) == (3, 2, COMMIT)


def test_offline_the_sentence_says_what_to_do(fetch):
    done, out = fetch()
    assert done.returncode == 1
    [line] = done.stderr.strip().splitlines()
    for word in ("someone/cartoons at main", "cannot be reached", "HF_HOME", "generated", "folder"):
        assert word in line
    assert not out.exists()


def test_offline_the_cached_copy_of_exactly_this_revision_is_used(fetch, tmp_path):
    cached = tmp_path / "home/hub/datasets--someone--cartoons"
    hub_folder(cached / "snapshots" / COMMIT)
    (cached / "refs").mkdir()
    (cached / "refs/main").write_text(COMMIT)
    done, out = fetch()
    assert done.returncode == 0, done.stderr
    assert read_index(out).revision == COMMIT
    done, _ = fetch(revision="f" * 40)
    assert done.returncode == 1
    assert "no copy" in done.stderr


@pytest.mark.parametrize(
    ("status", "code", "says"),
    [
        (403, "GatedRepo", "HF_TOKEN"),
        (401, "RepoNotFound", "HF_TOKEN"),
        (404, "RevisionNotFound", "no revision 'main'"),
    ],
)
def test_a_refusal_of_the_hub_is_one_sentence(fetch, status, code, says):
    class Refusal(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(status)
            self.send_header("X-Error-Code", code)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Refusal) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        done, _ = fetch(f"http://127.0.0.1:{server.server_port}")
        server.shutdown()
    assert done.returncode == 1
    [line] = done.stderr.strip().splitlines()
    assert "someone/cartoons" in line
    assert says in line


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"config": "matchings"}, "matchings"),
        ({"columns": {"caption": "joke"}}, "columns.caption: split train of"),
        ({"columns": {"caption": "votes", "image": "votes"}}, "not a column of images"),
    ],
)
def test_a_wrong_setting_of_a_hub_dataset_is_an_error(fetch_here, tmp_path, changes, says):
    with pytest.raises((ConfigError, DataError), match=says):
        fetch_here(hub_folder(tmp_path / "copy"), **changes)
    assert not (tmp_path / "raw").exists()
