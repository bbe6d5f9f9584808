"""`python -m feedrate.report.push`: push a kept model, with its card, to the hub.

The token comes from HF_TOKEN and is never shown. A model goes when it has been scored: that a
run has none, or that scoring failed, is told in the file, and is no error.
"""

import argparse
import json
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.parse import quote

from feedrate.core.errors import Masker, fail
from feedrate.core.files import write_json

# The page of a repository that holds the models of many cells: the hub shows none but its
# root's.
# The folders' own cards are linked there, as they lie in the repository.

README = "README.md"


def push_index(api: Any, repository: str) -> None:
    """Write the root's README.md of all folders that have a card; again, where another push has
    brought one meanwhile. `api` is an HfApi; raises what it raises."""
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
    """The folders that have a card, sorted; the root is none of them."""
    return sorted(file.removesuffix(f"/{README}") for file in files if file.endswith(f"/{README}"))


def index(found: Iterable[str]) -> str:
    """The page: metadata in YAML, then a line a folder."""
    head = ["---", "library_name: transformers", "tags:", "- feedrate", "---", "# Models", ""]
    about = "Trained with feedrate; a folder is a study, a device and a cell, with its own card."
    lines = [f"- [`{one}`]({quote(one, safe='/=~')}/{README})" for one in found]
    return "\n".join([*head, about, "", *lines]) + "\n"


PUSHED = ("*.safetensors", "*.json", "*.txt", "*.model", "README.md")
"""Weights, configuration, tokenizer and card; not the Trainer's pickle of its arguments."""


class PushError(Exception):
    """The model cannot be pushed; the message says why."""


def require_token() -> str:
    """HF_TOKEN. Raises PushError where it is not set."""
    token = os.environ.get("HF_TOKEN", "").strip()
    if not token:
        raise PushError("push_to_hub needs a token in the environment variable HF_TOKEN")
    return token


def push_model(folder: Path, repository: str, place: str) -> str:
    """Upload a folder of weights to the folder `place` of a repository, which is made, private,
    where it is not there. A repository can so hold the models of all cells; its root lists them.

    Returns the commit's address. Raises PushError where the hub refuses or is not reached.
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
    except Exception as error:  # each version of the client has network errors of its own
        reason = Masker()((str(error).strip().splitlines() or [type(error).__name__])[0])
        raise PushError(f"{repository}: not pushed: {reason.replace(token, '***')}") from None
    return str(commit.commit_url)


def lacks(quality: Path, model: Path) -> str:
    """Why there is no model to push, by its quality.json; empty where there is one.

    Raises PushError for a file that is none.
    """
    try:
        scored = json.loads(quality.read_text(encoding="utf-8"))
        if scored["status"] != "ok":
            return f"not scored: {scored['cause']}"
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise PushError(f"{quality}: no scores ({type(error).__name__}: {error})") from None
    return "" if any(model.glob("*.safetensors")) else f"no weights in {model}"


def main(arguments: list[str] | None = None) -> int:
    """The command line; the exit code."""
    parser = argparse.ArgumentParser(prog="feedrate.report.push", description=__doc__)
    parser.add_argument("--model", required=True, type=Path, help="folder of the kept model")
    parser.add_argument("--quality", required=True, type=Path, help="quality.json of the run")
    parser.add_argument("--repository", required=True, help="repository on the hub")
    parser.add_argument("--place", required=True, help="folder there")
    parser.add_argument("--out", required=True, type=Path, help="pushed.json")
    options = parser.parse_args(arguments)
    told = {"repository": options.repository, "place": options.place, "commit": None, "cause": ""}
    try:
        if cause := lacks(options.quality, options.model):
            told["cause"] = cause
            print(f"{options.place}: nothing to push: {cause}")
        else:
            told["commit"] = push_model(options.model, options.repository, options.place)
            print(f"pushed {options.place} to {options.repository}")
        write_json(options.out, told)
    except (PushError, OSError) as error:
        return fail(parser.prog, error)
    return 0


if __name__ == "__main__":
    sys.exit(main())
