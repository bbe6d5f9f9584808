"""The Hugging Face hub: files of a repository at one revision, and its refusals in one sentence."""

import os
from collections.abc import Sequence
from pathlib import Path

from feedrate.data.manifest import DataError
from feedrate.data.tables import first_line

TIMEOUT_S = 20.0
"""For the hub's first answer."""


def download(
    what: str,
    name: str,
    revision: str,
    patterns: Sequence[str],
    advice: str,
    repo_type: str = "model",
) -> Path:
    """Download a repository's files that match `patterns`; return their folder in the hub's cache.

    Without a network, the cache's copy of this revision is used. The folder's name is the commit.
    Raises the DataError of `unavailable`.
    """
    import huggingface_hub

    try:
        return Path(
            huggingface_hub.snapshot_download(
                name,
                revision=revision,
                allow_patterns=list(patterns),
                token=token(),
                etag_timeout=TIMEOUT_S,
                repo_type=repo_type,
            )
        )
    except Exception as error:  # each version of the client has its own network errors
        raise unavailable(what, revision, error, advice) from None


def unavailable(what: str, revision: str, error: Exception, advice: str) -> DataError:
    """Why the hub does not provide `what`; `advice` says what else to do if it is unreachable."""
    return DataError(
        refusal(what, revision, error)
        or f"{what} at {revision}: the hub cannot be reached ({first_line(error)}) and the local "
        "cache has no copy; give this machine network access (on a cluster: another partition, or "
        f"on_driver: [short, downloads]), or {advice}"
    )


def refusal(what: str, revision: str, error: Exception) -> str:
    """Explain an error that is the hub's answer; empty if the hub could not be asked."""
    from huggingface_hub import errors

    if isinstance(error, errors.HFValidationError):
        return f"{what}: {first_line(error)}"
    if isinstance(error, errors.GatedRepoError):
        return (
            f"{what}: its owner must grant access: accept the terms on its page and set "
            "HF_TOKEN to a token of that account"
        )
    if isinstance(error, errors.RevisionNotFoundError):
        return f"{what} has no revision {revision!r}"
    if isinstance(error, errors.RepositoryNotFoundError):
        return (
            f"{what}: the hub has none of this name, or it is private; for a private one set "
            "HF_TOKEN to a token that may read it"
        )
    return ""


def token() -> str | bool:
    """The token in HF_TOKEN; False forbids the client to use one that is stored on the machine."""
    return os.environ.get("HF_TOKEN") or False
