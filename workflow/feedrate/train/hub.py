"""Pushing a trained model to the hub; the token comes from HF_TOKEN and is never shown."""

import os
from pathlib import Path


class PushError(Exception):
    """The model cannot be pushed; the message says why."""


def require_token() -> str:
    """HF_TOKEN. Raises PushError where it is not set."""
    token = os.environ.get("HF_TOKEN", "").strip()
    if not token:
        raise PushError("--push-to needs a token in the environment variable HF_TOKEN")
    return token


def push_model(folder: Path, repository: str, place: str) -> None:
    """Upload a folder of weights to the folder `place` of a repository, which is made, private,
    where it is not there. A repository can so hold the models of all cells.

    Raises PushError where the hub refuses or is not reached.
    """
    token = require_token()
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError

    api = HfApi(token=token)
    try:
        api.create_repo(repository, private=True, exist_ok=True)
        api.upload_folder(
            repo_id=repository,
            folder_path=folder,
            path_in_repo=place,
            commit_message=f"feedrate: {place}",
        )
    except (HfHubHTTPError, OSError, ValueError) as error:
        reason = str(error).strip().splitlines()[0].replace(token, "***")
        raise PushError(f"{repository}: not pushed: {reason}") from None
