"""`python -m feedrate.report.push`: push a kept model, with its card, to the hub.

The token comes from HF_TOKEN and is never printed. Only scored models are pushed: for a run without
a model, or with failed scoring, the output gives the reason, and that is no error.
"""

import argparse
import json
import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from feedrate.core.errors import Masker, fail
from feedrate.core.files import write_json
from feedrate.report.card import README, hub_page

PUSHED = ("*.safetensors", "*.json", "*.txt", "*.model", README)
"""Weights, configuration, tokenizer and card; not the Trainer's pickle of its arguments."""


class PushError(Exception):
    """The model cannot be pushed; the message gives the reason."""


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
    listed: list[str] | None = None
    while (found := folders(api.list_repo_files(repository))) != listed:
        api.upload_file(
            repo_id=repository,
            path_or_fileobj=index(found).encode(),
            path_in_repo=README,
            commit_message="feedrate: list of models",
        )
        listed = found


def folders(files: Iterable[str]) -> list[str]:
    """The folders that have a card, sorted, without the root."""
    return sorted(file.removesuffix(f"/{README}") for file in files if file.endswith(f"/{README}"))


def index(found: Iterable[str]) -> str:
    """The root page: metadata in YAML, then a line for each folder."""
    from huggingface_hub import ModelCardData

    data = ModelCardData(library_name="transformers", tags=["feedrate"])
    about = (
        "Trained with feedrate. Each folder holds the model of one study, device and cell, with "
        "its own card."
    )
    lines = [f"- [`{one}`]({quote(one, safe='/=~')}/{README})" for one in found]
    return hub_page(data, "# Models", about, "\n".join(lines))


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


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; the exit code."""
    parser = argparse.ArgumentParser(prog="feedrate.report.push", description=__doc__)
    parser.add_argument("--model", required=True, type=Path, help="folder of the kept model")
    parser.add_argument("--quality", required=True, type=Path, help="quality.json of the run")
    parser.add_argument("--repository", required=True, help="repository on the hub")
    parser.add_argument("--place", required=True, help="folder there")
    parser.add_argument("--out", required=True, type=Path, help="pushed.json")
    options = parser.parse_args(arguments)
    result = {"repository": options.repository, "place": options.place, "commit": None, "cause": ""}
    try:
        if cause := missing_model(options.quality, options.model):
            result["cause"] = cause
            print(f"{options.place}: nothing to push: {cause}")
        else:
            result["commit"] = push_model(options.model, options.repository, options.place)
            print(f"pushed {options.place} to {options.repository}")
        write_json(options.out, result)
    except (PushError, OSError) as error:
        return fail(parser.prog, error)
    return 0


if __name__ == "__main__":
    sys.exit(main())
