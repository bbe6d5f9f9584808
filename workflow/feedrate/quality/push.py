"""`python -m feedrate.quality.push`: push a kept model, with its card, to the hub.

The token comes from HF_TOKEN and is never shown. A run that has kept no model is none to push: that
is told in the file, and is no error.
"""

import argparse
import os
import sys
from pathlib import Path

from feedrate.files import write_json
from feedrate.secrets import Masker

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
    where it is not there. A repository can so hold the models of all cells.

    Returns the commit's address. Raises PushError where the hub refuses or is not reached.
    """
    token = require_token()
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError

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
    except (HfHubHTTPError, OSError, ValueError) as error:
        reason = Masker()((str(error).strip().splitlines() or [type(error).__name__])[0])
        raise PushError(f"{repository}: not pushed: {reason.replace(token, '***')}") from None
    return str(commit.commit_url)


def main(arguments: list[str] | None = None) -> int:
    """The command line; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m feedrate.quality.push", description=__doc__)
    parser.add_argument("--model", required=True, type=Path, help="folder of the kept model")
    parser.add_argument("--repository", required=True, help="repository on the hub")
    parser.add_argument("--place", required=True, help="folder there")
    parser.add_argument("--out", required=True, type=Path, help="pushed.json")
    options = parser.parse_args(arguments)
    told = {"repository": options.repository, "place": options.place, "commit": None, "cause": ""}
    try:
        if any(options.model.glob("*.safetensors")):
            told["commit"] = push_model(options.model, options.repository, options.place)
            print(f"pushed {options.place} to {options.repository}")
        else:
            told["cause"] = "the run has kept no model"
            print(f"{options.place}: nothing to push: {told['cause']}")
        write_json(options.out, told)
    except PushError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
