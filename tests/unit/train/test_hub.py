"""Pushing to the hub, against a stand-in for it."""

from types import SimpleNamespace

import huggingface_hub
import pytest
from huggingface_hub.errors import HfHubHTTPError

from feedrate.train.hub import PushError, push_model, require_token

TOKEN = "hf_secret_secret"


class Hub:
    """Notes what the client is asked."""

    calls: list = []
    refuse: Exception | None = None

    def __init__(self, token):
        self.calls.append(("token", token))

    def create_repo(self, repository, **options):
        if self.refuse:
            raise self.refuse
        self.calls.append(("create_repo", repository, options))

    def upload_folder(self, **options):
        self.calls.append(("upload_folder", options))


@pytest.fixture
def hub(monkeypatch):
    monkeypatch.setattr(huggingface_hub, "HfApi", Hub)
    monkeypatch.setattr(Hub, "calls", [])
    monkeypatch.setattr(Hub, "refuse", None)
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    return Hub


def test_a_folder_is_pushed_privately_with_the_environments_token(hub, tmp_path, capsys):
    push_model(tmp_path, "me/model", "study/cpu/workers=0")
    assert hub.calls[0] == ("token", TOKEN)
    assert hub.calls[1] == ("create_repo", "me/model", {"private": True, "exist_ok": True})
    assert hub.calls[2][1]["folder_path"] == tmp_path
    assert hub.calls[2][1]["path_in_repo"] == "study/cpu/workers=0"
    assert TOKEN not in "".join(capsys.readouterr())


@pytest.mark.parametrize("token", [None, "", "  "])
def test_without_a_token_it_is_refused_in_a_sentence(monkeypatch, token, tmp_path):
    if token is None:
        monkeypatch.delenv("HF_TOKEN", raising=False)
    else:
        monkeypatch.setenv("HF_TOKEN", token)
    with pytest.raises(PushError, match="needs a token in the environment variable HF_TOKEN"):
        require_token()
    with pytest.raises(PushError):
        push_model(tmp_path, "me/model", "study/cpu/workers=0")


def test_a_refusal_is_told_without_the_token(hub, monkeypatch, tmp_path):
    response = SimpleNamespace(headers={}, request=None)
    refusal = HfHubHTTPError(f"401 for {TOKEN}", response=response)
    monkeypatch.setattr(hub, "refuse", refusal)
    with pytest.raises(PushError) as error:
        push_model(tmp_path, "me/model", "study/cpu/workers=0")
    assert str(error.value) == "me/model: not pushed: 401 for ***"
