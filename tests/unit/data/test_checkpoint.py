"""A hub checkpoint brought to the project, from where training jobs take it without a network."""

import json
import os
import subprocess
import sys

import pytest

from feedrate.config.settings import ModelSettings
from feedrate.core import paths
from feedrate.data.hub import check_fetched
from feedrate.data.manifest import DataError
from feedrate.models.build import ModelError, find_checkpoint

COMMIT = "0123456789abcdef0123456789abcdef01234567"
NAME = "someone/bridge"
MODEL = ModelSettings(name="bridgetower", size="large", checkpoint=NAME, revision="v1/a")
FILES = {"config.json": "{}", "model.safetensors": "weights", "tokenizer.json": "{}"}


@pytest.fixture
def hub_cache(tmp_path):
    """The hub's cache with a checkpoint, as a download leaves it: links to blobs."""
    cached = tmp_path / "home/hub/models--someone--bridge"
    snapshot = cached / "snapshots" / COMMIT
    snapshot.mkdir(parents=True)
    (cached / "blobs").mkdir()
    (cached / "refs/v1").mkdir(parents=True)
    (cached / "refs/v1/a").write_text(COMMIT)
    for name, text in FILES.items():
        (cached / "blobs" / name).write_text(text)
        (snapshot / name).symlink_to(f"../../blobs/{name}")
    return snapshot


@pytest.fixture
def fetch(tmp_path):
    """Run the real command with a hub that does not answer."""

    def run(revision="v1/a"):
        out = tmp_path / paths.CHECKPOINT.format(checkpoint=paths.checkpoint_key(NAME, revision))
        environment = {
            **os.environ,
            "HF_HOME": str(tmp_path / "home"),
            "HF_ENDPOINT": "http://127.0.0.1:9",
            "HF_HUB_DISABLE_TELEMETRY": "1",
        }
        environment.pop("HF_TOKEN", None)
        command = [sys.executable, "-m", "feedrate", "fetch_checkpoint", "--name", NAME]
        done = subprocess.run(
            [*command, "--revision", revision, "--out", str(out)],
            env=environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        return done, out

    return run


def test_its_files_are_taken_as_they_are_and_listed(hub_cache, fetch):
    (hub_cache / "pytorch_model.bin").write_text("pickle")
    done, out = fetch()
    assert done.returncode == 0, done.stderr
    assert not (out.parent / "pytorch_model.bin").exists()
    assert {name: (out.parent / name).read_text() for name in FILES} == FILES
    assert not any(file.is_symlink() for file in out.parent.iterdir())
    told = json.loads(out.read_text())
    assert (told["name"], told["revision"], told["commit"]) == (NAME, "v1/a", COMMIT)
    assert set(told["sha256"]) == set(FILES)


def test_its_files_are_held_against_what_was_fetched(hub_cache, fetch):
    done, out = fetch()
    assert done.returncode == 0, done.stderr
    check_fetched(out)
    weights = out.parent / "model.safetensors"
    weights.unlink()  # it is a link to the hub's cache
    with pytest.raises(DataError, match=f"^{weights} cannot be read .*: delete the folder"):
        check_fetched(out)
    weights.write_text("others")
    with pytest.raises(DataError, match=f"^{weights} does not match its recorded checksum: delete"):
        check_fetched(out)
    weights.write_text("weights")
    check_fetched(out)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"sha256": 3}'])
def test_a_list_that_is_none_is_told_in_a_sentence(tmp_path, text):
    (tmp_path / "fetched.json").write_text(text)
    with pytest.raises(DataError, match=r"fetched.json: not of this .*: delete .* again$"):
        check_fetched(tmp_path / "fetched.json")


def test_a_training_job_takes_it_from_there(hub_cache, fetch, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert find_checkpoint(MODEL) == NAME
    done, out = fetch()
    assert done.returncode == 0, done.stderr
    assert find_checkpoint(MODEL) == str(out.parent.relative_to(tmp_path))


def test_a_folder_stays_a_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ModelError, match="no such folder"):
        find_checkpoint(
            ModelSettings(name="bridgetower", size="large", checkpoint="./nowhere", revision=None)
        )


def test_a_pickle_is_refused_and_nothing_is_left(hub_cache, fetch):
    (hub_cache / "model.safetensors").unlink()
    (hub_cache / "pytorch_model.bin").write_text("pickle")
    done, out = fetch()
    assert done.returncode == 1
    [line] = done.stderr.strip().splitlines()
    assert "someone/bridge at v1/a has no *.safetensors file" in line
    assert not out.parent.exists()


def test_without_network_and_copy_the_sentence_says_what_to_do(fetch):
    done, out = fetch("main")
    assert done.returncode == 1
    [line] = done.stderr.strip().splitlines()
    for word in ("someone/bridge at main", "cannot be reached", "on_driver", "local folder"):
        assert word in line
    assert not out.parent.exists()
