"""The Hugging Face hub: repositories at a revision, and checkpoints fetched with checksums."""

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

import msgspec

from feedrate.config.values import Strict
from feedrate.core.errors import first_line
from feedrate.core.files import digest_file, replaced_folder, write_json
from feedrate.data.manifest import DataError, check_files, read_document

TIMEOUT_S = 20.0  # for the hub's first answer
PATTERNS = ("*.safetensors", "*.json", "*.txt", "*.model")
"""Files of a checkpoint: weights, configuration and tokenizers; never a pickle."""


class Checkpoint(Strict, kw_only=True):
    """fetched.json; `sha256` of each file."""

    name: str
    revision: str
    commit: str
    sha256: dict[str, str]


def fetch_checkpoint(name: str, revision: str, out: Path) -> None:
    """Fetch the repository `name` at `revision`; `out` is fetched.json. Raises DataError."""
    advice = "set `checkpoint` to a local folder"
    source = download("checkpoint", name, revision, PATTERNS, advice)
    files = sorted({file for pattern in PATTERNS for file in source.rglob(pattern)})
    if not any(file.suffix == ".safetensors" for file in files):
        raise DataError(f"checkpoint {name} at {revision} has no *.safetensors file")
    with replaced_folder(out.parent) as folder:
        sha256 = {}
        for file in files:
            name_in_folder = str(file.relative_to(source))
            copy = folder / name_in_folder
            copy.parent.mkdir(parents=True, exist_ok=True)
            try:
                os.link(file.resolve(), copy)
            except OSError:  # the cache is on another file system
                shutil.copyfile(file, copy)
            sha256[name_in_folder] = digest_file(copy)
        fetched = Checkpoint(name=name, revision=revision, commit=source.name, sha256=sha256)
        write_json(folder / out.name, msgspec.to_builtins(fetched))
    print(f"fetched {name} at {revision}: {len(files)} files")


def check_fetched(index: Path) -> None:
    """Compare a checkpoint with its checksums in `index` (fetched.json). Raises DataError."""
    check_files(index.parent, read_document(index, Checkpoint, "it has not been fetched").sha256)


def download(kind: str, name: str, revision: str, patterns: Sequence[str], advice: str) -> Path:
    """Download the files that match `patterns` from a repository (kind: checkpoint or dataset).
    Return their folder in the hub's cache, whose name is the commit; without a network, that of
    this revision. Raises the DataError of `unavailable`."""
    import huggingface_hub

    try:
        folder = huggingface_hub.snapshot_download(
            name,
            repo_type="model" if kind == "checkpoint" else kind,
            revision=revision,
            allow_patterns=list(patterns),
            token=token(),
            etag_timeout=TIMEOUT_S,
        )
        return Path(folder)
    except Exception as error:  # each version of the client has its own network errors
        raise unavailable(f"{kind} {name}", revision, error, advice) from None


def unavailable(subject: str, revision: str, error: Exception, advice: str) -> DataError:
    """The error for `subject` that cannot be fetched; `advice` says what to do without the hub."""
    reason = first_line(error)
    return DataError(
        refusal(subject, revision, error)
        or f"{subject} at {revision}: the hub cannot be reached ({reason}) and the local cache has "
        "no copy; give this machine network access (on a cluster: another partition, or on_driver: "
        f"[short, downloads]), or {advice}"
    )


def refusal(subject: str, revision: str, error: Exception) -> str:
    """Explain an error that the hub answered with; empty if the hub could not be reached."""
    from huggingface_hub import errors

    gated = "accept the terms on its page and set HF_TOKEN to a token of that account"
    private = "or it is private; for a private one set HF_TOKEN to a token that may read it"
    match error:
        case errors.HFValidationError():
            return f"{subject}: {first_line(error)}"
        case errors.GatedRepoError():
            return f"{subject}: its owner must grant access: {gated}"
        case errors.RevisionNotFoundError():
            return f"{subject} has no revision {revision!r}"
        case errors.RepositoryNotFoundError():
            return f"{subject}: the hub has no repository of this name, {private}"
    return ""


def token() -> str | bool:
    """The token in HF_TOKEN; False forbids the client one that is stored on the machine."""
    return os.environ.get("HF_TOKEN") or False
