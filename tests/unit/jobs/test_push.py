"""A push of the Trainer: what it sends, and what it may not do."""

from pathlib import Path

import pytest
from training_jobs import make_spec, named, train_here

from feedrate.jobs.train import LONGEST_REPOSITORY, repository_of
from feedrate.jobs.worker import Options
from tiny_spec import tiny_spec

TOKEN = "hf_secret_of_a_test"


@pytest.fixture
def push(tiny_prepared, tmp_path, monkeypatch):
    """Train and push; the run's folder and the notes."""
    monkeypatch.setenv("HF_TOKEN", TOKEN)

    def _push():
        run, options = tmp_path / "run", Options(push_to="me/models")
        return run, named(train_here(tiny_prepared, run, make_spec(), options), "note")

    return _push


def test_model_tokenizer_and_card_go_to_a_repository_of_the_cell(push, monkeypatch):
    calls = []

    class Api:
        def create_repo(self, name, **how):
            calls.append((name, how["private"], how["token"]))
            return type("Url", (), {"repo_id": name})

        def upload_folder(self, **how):
            files = {path.name for path in Path(how["folder_path"]).iterdir()}
            calls.append((how["repo_id"], how["token"], files))

    monkeypatch.setattr("transformers.trainer.hf_api", Api)
    run, (note,) = push()
    name = "me/models-study-cpu-workers-0"
    assert calls[0] == (name, True, TOKEN)
    assert calls[1][:2] == (name, TOKEN)
    assert calls[1][2] >= {"model.safetensors", "config.json", "tokenizer.json", "README.md"}
    assert (note["about"], note["message"]) == ("push_to_hub", f"pushed to {name}")
    assert TOKEN.encode() not in b"".join(f.read_bytes() for f in run.rglob("*") if f.is_file())


def test_a_push_that_fails_is_a_note_without_the_token(push, monkeypatch, capfd):
    def refuse(*_, **__):
        raise ConnectionError(f"no route with {TOKEN}")

    monkeypatch.setattr("transformers.trainer.hf_api", refuse)
    run, (note,) = push()
    assert (note["about"], note["type"]) == ("push_to_hub", "ConnectionError")
    assert "no route" in note["message"]
    assert TOKEN not in (run / "events.jsonl").read_text() + "".join(capfd.readouterr())


def test_names_are_those_that_the_hub_allows():
    spec = tiny_spec(study="a-study", cell="workers=0~decode=host")
    assert repository_of("me/models", spec) == "me/models-a-study-cpu-workers-0-decode-host"
    long = [tiny_spec(cell=f"{'level=high~' * 12}{last}") for last in "ab"]
    names = {repository_of("me/models", one) for one in long}
    assert len(names) == 2
    assert {len(name) for name in names} == {LONGEST_REPOSITORY}
