"""Pushing to the hub, against a stand-in for it."""

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import huggingface_hub
import pytest
from huggingface_hub import ModelCard
from huggingface_hub.errors import HfHubHTTPError
from stand_in_hub import COMMIT, stand_in_hub

from feedrate.cli import jobs
from feedrate.report.card import PushError, push_model

TOKEN = "hf_secret_secret"
CARDS = ["study/cpu/workers=0/README.md", "a/b/c/README.md"]


class Hub:
    """Records the calls of the client."""

    calls: list = []
    refuse: Exception | None = None
    later: list = []
    """Files that another push adds between two listings."""

    def __init__(self, token):
        self.calls.append(("token", token))

    def create_repo(self, repository, **options):
        if self.refuse:
            raise self.refuse
        self.calls.append(("create_repo", repository, options))

    def upload_folder(self, **options):
        files = sorted(path.name for path in Path(options["folder_path"]).iterdir())
        self.calls.append(("upload_folder", options, files))
        return SimpleNamespace(commit_url="https://hub.example/me/models/commit/1234")

    def list_repo_files(self, repository):
        assert repository == "me/models"
        return ["README.md", ".gitattributes", *CARDS, *self.later]

    def upload_file(self, **options):
        self.calls.append(("upload_file", options["path_in_repo"], options["path_or_fileobj"]))
        if len(self.calls) == 4:
            self.later.append("z/y/x/README.md")


@pytest.fixture
def hub(monkeypatch):
    monkeypatch.setattr(huggingface_hub, "HfApi", Hub)
    monkeypatch.setattr(Hub, "calls", [])
    monkeypatch.setattr(Hub, "refuse", None)
    monkeypatch.setattr(Hub, "later", [])
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    return Hub


def test_a_folder_is_pushed_privately_with_the_environments_token(hub, tmp_path, capsys):
    push_model(tmp_path, "me/models", "study/cpu/workers=0")
    assert hub.calls[0] == ("token", TOKEN)
    assert hub.calls[1] == ("create_repo", "me/models", {"private": True, "exist_ok": True})
    assert hub.calls[2][1]["folder_path"] == tmp_path
    assert hub.calls[2][1]["path_in_repo"] == "study/cpu/workers=0"
    assert TOKEN not in "".join(capsys.readouterr())


@pytest.mark.parametrize("token", [None, "", "  "])
def test_without_a_token_the_push_is_refused(monkeypatch, token, tmp_path):
    if token is None:
        monkeypatch.delenv("HF_TOKEN", raising=False)
    else:
        monkeypatch.setenv("HF_TOKEN", token)
    with pytest.raises(PushError, match="needs a token in the environment variable HF_TOKEN"):
        push_model(tmp_path, "me/models", "study/cpu/workers=0")


def test_the_message_of_a_refusal_hides_the_token(hub, monkeypatch, tmp_path):
    response = SimpleNamespace(headers={}, request=None)
    refusal = HfHubHTTPError(f"401 for {TOKEN}", response=response)
    monkeypatch.setattr(hub, "refuse", refusal)
    with pytest.raises(PushError) as error:
        push_model(tmp_path, "me/models", "study/cpu/workers=0")
    assert str(error.value) == "me/models: not pushed: 401 for ***"


@pytest.fixture
def model(tmp_path):
    """A kept model with its card."""
    folder = tmp_path / "trainer/model"
    folder.mkdir(parents=True)
    for name in ("README.md", "config.json", "model.safetensors"):
        (folder / name).write_text(name)
    scored(tmp_path, "ok")
    return folder


def scored(run, status, cause=""):
    """Write the status of scoring to quality.json."""
    (run / "quality.json").write_text(json.dumps({"status": status, "cause": cause}))


def test_no_pickle_is_pushed(model, tmp_path):
    (model / "training_args.bin").write_bytes(b"pickle")
    with stand_in_hub() as hub:
        done = pushed_by_the_real_client(hub, model, tmp_path / "pushed.json", "a/b/c")
    assert done.returncode == 0, done.stderr
    assert set(hub.files) == {
        "README.md",
        *(f"a/b/c/{name}" for name in ("README.md", "config.json", "model.safetensors")),
    }


def command(model, out):
    place = "study/cpu/workers=0"
    where = ["--repository", "me/models", "--place", place, "--out", str(out)]
    return jobs.run("push-model", [*of_run(model), *where])


def of_run(model):
    """The arguments that name a run's files."""
    return ["--model", str(model), "--quality", str(model.parents[1] / "quality.json")]


def test_a_model_goes_with_its_card(hub, model, tmp_path, capsys):
    out = tmp_path / "pushed.json"
    assert command(model, out) == 0
    _, options, files = hub.calls[2]
    assert files == ["README.md", "config.json", "model.safetensors"]
    assert options["path_in_repo"] == "study/cpu/workers=0"
    told = json.loads(out.read_text())
    assert told["commit"] == "https://hub.example/me/models/commit/1234"
    assert (told["repository"], told["place"], told["cause"]) == (
        "me/models",
        "study/cpu/workers=0",
        "",
    )
    assert TOKEN not in out.read_text() + "".join(capsys.readouterr())


@pytest.mark.parametrize(
    ("status", "cause"),
    [
        ("no_model", "The run ended with status failed: its node was lost"),
        ("failed", "the device ran out of memory"),
    ],
)
def test_a_model_that_was_not_scored_is_not_pushed_even_if_weights_exist(
    hub, model, tmp_path, status, cause
):
    scored(tmp_path, status, cause)
    out = tmp_path / "pushed.json"
    assert command(model, out) == 0
    assert hub.calls == []
    told = json.loads(out.read_text())
    assert (told["commit"], told["cause"]) == (None, f"not scored: {cause}")


def test_weights_that_were_removed_are_not_pushed(hub, model, tmp_path):
    (model / "model.safetensors").unlink()
    out = tmp_path / "pushed.json"
    assert command(model, out) == 0
    assert hub.calls == []
    assert json.loads(out.read_text())["cause"] == f"no weights in {model}"


@pytest.mark.parametrize("text", ["[]", "{", "{}"])
def test_an_invalid_quality_file_gives_one_sentence(hub, model, tmp_path, capsys, text):
    (tmp_path / "quality.json").write_text(text)
    assert command(model, tmp_path / "pushed.json") == 1
    said = capsys.readouterr().err
    assert said.startswith(
        f"feedrate push-model: {tmp_path / 'quality.json'}: not of this version: "
    )
    assert said.count("\n") == 1
    assert hub.calls == []


def test_the_repositorys_page_lists_all_folders_with_a_card(hub, model, tmp_path):
    assert command(model, tmp_path / "pushed.json") == 0
    first, second = hub.calls[3:]
    assert [call[1] for call in (first, second)] == ["README.md", "README.md"]
    page = ModelCard(first[2].decode())
    assert (page.data.library_name, page.data.tags) == ("transformers", ["feedrate"])
    assert [line for line in page.text.splitlines() if line.startswith("-")] == [
        "- [`a/b/c`](a/b/c/README.md)",
        "- [`study/cpu/workers=0`](study/cpu/workers=0/README.md)",
    ]
    # Another push came in between: its folder is not left out.
    assert b"- [`z/y/x`](z/y/x/README.md)" in second[2]


def test_a_refusal_by_the_hub_gives_one_sentence_and_no_file(
    hub, model, tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(hub, "refuse", OSError(f"no route; header Bearer {TOKEN}\nmore"))
    out = tmp_path / "pushed.json"
    assert command(model, out) == 1
    assert not out.exists()
    printed = capsys.readouterr()
    assert printed.err == (
        "feedrate push-model: me/models: not pushed: no route; header Bearer ***\n"
    )
    assert printed.out == ""


def test_the_command_reports_a_missing_token(hub, model, tmp_path, monkeypatch, capsys):
    monkeypatch.delenv("HF_TOKEN")
    assert command(model, tmp_path / "pushed.json") == 1
    assert capsys.readouterr().err == (
        "feedrate push-model: push_to_hub needs a token in the environment variable HF_TOKEN\n"
    )
    assert hub.calls == []


def pushed_by_the_real_client(hub, model, out, place):
    """Run the command against a stand-in."""
    return pushed_to(hub.address, model, out, place)


def pushed_to(address, model, out, place="study/cpu/workers=0"):
    """Run the command against the server at an address."""
    environment = {
        **os.environ,
        "HF_ENDPOINT": address,
        "HF_HOME": str(out.parent / "home"),
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "HF_TOKEN": TOKEN,
    }
    command = [sys.executable, "-m", "feedrate", "push-model", *of_run(model)]
    return subprocess.run(
        [*command, "--repository", "me/models", "--place", place, "--out", str(out)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_the_real_client_pushes_to_a_stand_in(model, tmp_path):
    out = tmp_path / "pushed.json"
    place = "study/cpu/workers=0~decode=host"
    with stand_in_hub() as hub:
        done = pushed_by_the_real_client(hub, model, out, place)
    assert done.returncode == 0, done.stderr
    commits = [asked for asked in hub.asked if "/commit/" in asked[0]]
    assert len(commits) == 2  # the model, and the list of models
    assert all(path.startswith("/api/models/me/models/commit/main") for path, _ in commits)
    assert {token for _, token in commits} == {f"Bearer {TOKEN}"}
    page = hub.files.pop("README.md").decode()
    assert f"- [`{place}`]({place}/README.md)" in page
    assert hub.files == {
        f"{place}/{name}": name.encode()
        for name in ("README.md", "config.json", "model.safetensors")
    }
    assert json.loads(out.read_text())["commit"] == COMMIT
    assert TOKEN not in done.stdout + done.stderr + out.read_text()


def test_an_unreachable_hub_gives_one_sentence(model, tmp_path):
    out = tmp_path / "pushed.json"
    done = pushed_to("http://127.0.0.1:9", model, out)
    assert done.returncode == 1
    assert done.stderr.startswith("feedrate push-model: me/models: not pushed: ")
    assert done.stderr.count("\n") == 1
    assert not out.exists()
