"""Push kept models with their cards to the hub. The token, from HF_TOKEN, is never shown."""

import json
import os
import re
from pathlib import Path
from typing import Any
from urllib.parse import quote

from feedrate.core.errors import ExpectedError, Masker
from feedrate.core.files import write_json
from feedrate.report.card import README, hub_page

PUSHED = ("*.safetensors", "*.json", "*.txt", "*.model", README)
"""Weights, configuration, tokenizer and card; not the Trainer's pickle of its arguments."""


class PushError(ExpectedError):
    """The model cannot be pushed; the message gives the reason."""


def push(model: Path, quality: Path, repository: str, place: str, out: Path) -> None:
    """Push a kept model to the folder `place` of a repository, and write the commit to `out`.

    Only scored models are pushed. Where a run has no model, or scoring failed, `out` gives the
    cause, and that is no error.
    """
    cause = missing_model(quality, model)
    commit = None if cause else push_model(model, repository, place)
    print(f"{place}: nothing to push: {cause}" if cause else f"pushed {place} to {repository}")
    result = {"repository": repository, "place": place, "commit": commit, "cause": cause}
    write_json(out, result)


def require_token() -> str:
    """HF_TOKEN. Raises PushError where it is not set."""
    token = os.environ.get("HF_TOKEN", "").strip()
    if not token:
        raise PushError("push_to_hub needs a token in the environment variable HF_TOKEN")
    return token


def push_model(folder: Path, repository: str, place: str) -> str:
    """Upload a folder of weights to the folder `place` of a repository, and return the commit's
    address.

    A missing repository is created, private. It can hold the models of all cells, which its root
    page lists. Raises PushError where the hub refuses or cannot be reached.
    """
    token = require_token()
    from huggingface_hub import HfApi

    api = HfApi(token=token)
    try:
        api.create_repo(repository, private=True, exist_ok=True)
        commit = api.upload_folder(
            repo_id=repository,
            folder_path=folder,
            path_in_repo=place,
            allow_patterns=list(PUSHED),
            commit_message=f"feedrate: {place}",
        )
        push_index(api, repository)
    except Exception as error:  # the client's network errors differ between its versions
        reason = Masker()((str(error).strip().splitlines() or [type(error).__name__])[0])
        raise PushError(f"{repository}: not pushed: {reason.replace(token, '***')}") from None
    return str(commit.commit_url)


def push_index(api: Any, repository: str) -> None:
    """Write the root page, which lists all folders with a card: the hub shows no other page.

    `api` is an HfApi. Another push may add a folder meanwhile; then the page is written again.
    """
    from huggingface_hub import ModelCardData

    data = ModelCardData(library_name="transformers", tags=["feedrate"])
    about = "Trained with feedrate: one model per study, device and cell, each with its own card."
    is_card = re.compile(f".+/{README}").fullmatch
    listed: list[str] | None = None
    while (cards := sorted(filter(is_card, api.list_repo_files(repository)))) != listed:
        lines = [f"- [`{Path(card).parent}`]({quote(card, safe='/=~')})" for card in cards]
        api.upload_file(
            repo_id=repository,
            path_or_fileobj=hub_page(data, "# Models", about, "\n".join(lines)).encode(),
            path_in_repo=README,
            commit_message="feedrate: list of models",
        )
        listed = cards


def missing_model(quality: Path, model: Path) -> str:
    """Why there is no model to push, by its quality.json; empty where there is one.

    Raises PushError for an invalid quality.json.
    """
    try:
        scored = json.loads(quality.read_text(encoding="utf-8"))
        if scored["status"] != "ok":
            return f"not scored: {scored['cause']}"
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise PushError(f"{quality}: no scores ({type(error).__name__}: {error})") from None
    return "" if any(model.glob("*.safetensors")) else f"no weights in {model}"
