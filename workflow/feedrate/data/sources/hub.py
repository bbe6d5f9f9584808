"""A dataset of the Hugging Face hub, at one revision; its encoded images become files."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from feedrate.config.errors import ConfigError
from feedrate.config.workflow import Hub
from feedrate.data.manifest import DataError, Fetched, LeftOut
from feedrate.data.rows import SCHEMA, split_named
from feedrate.data.sources.listed import EmbeddedImages, ListedFiles
from feedrate.data.tables import OWN, first_line

TIMEOUT_S = 20.0
"""For the hub's first answer."""

_IMAGE = "image"
_NO_IMAGE = "no image, one that is too large, or a file that is not in the dataset's own folder"


class _Place(NamedTuple):
    """Where `load_dataset` finds the dataset: a repository at a commit, or a local folder."""

    path: str
    commit: str | None
    revision: str | None
    """What is asked of the hub; None for a folder."""


def fetch_hub(name: str, settings: Hub, raw: Path) -> Fetched:
    """Load a dataset by revision and write its images, undecoded, into raw/images.

    `settings.name` may be a local folder in the hub's layout. No code of the dataset runs. The
    token, where one is needed, is HF_TOKEN. Raises DataError with what to do where the hub cannot
    be reached or refuses, and ConfigError for a wrong column.
    """
    place = _find(settings)
    splits = _load(settings, place)
    images, beside = EmbeddedImages(raw), ListedFiles(_folder(settings))
    rows: list[dict[str, Any]] = []
    left_out: list[LeftOut] = []
    for key, table in splits.items():
        split = split_named(key)
        if split is None:
            reason = "the split is not train, validation or test"
            left_out.append(LeftOut(path=key, reason=reason, rows=len(table)))
            continue
        columns = _columns(name, settings, key, table)
        for number, row in enumerate(_undecoded(name, table, columns[_IMAGE]), start=1):
            where = f"{key}, row {number}"
            mapped = {ours: row[theirs] for ours, theirs in columns.items()}
            mapped[_IMAGE] = images.write(row[columns[_IMAGE]], beside)
            if mapped[_IMAGE] is None:
                left_out.append(LeftOut(path=where, reason=_NO_IMAGE))
            else:
                rows.append(mapped | {"split": split, "origin": where})
    return Fetched(rows=rows, files=images.written(), left_out=left_out, revision=place.commit)


def _folder(settings: Hub) -> Path:
    """Where the files lie that the dataset's tables may name: the local folder, or what the hub's
    cache holds of this dataset."""
    from huggingface_hub.constants import HF_HUB_CACHE
    from huggingface_hub.file_download import repo_folder_name

    if (local := Path(settings.name)).is_dir():
        return local.resolve()
    of_dataset = repo_folder_name(repo_id=settings.name, repo_type="dataset")
    return (Path(HF_HUB_CACHE) / of_dataset).resolve()


def _find(settings: Hub) -> _Place:
    """Ask the hub for the revision's commit; where it cannot be reached, look into its cache."""
    import huggingface_hub

    if Path(settings.name).is_dir():
        return _Place(settings.name, None, None)
    try:
        api = huggingface_hub.HfApi(token=hub_token())
        info = api.dataset_info(settings.name, revision=settings.revision, timeout=TIMEOUT_S)
        return _Place(settings.name, info.sha, info.sha)
    except Exception as error:  # each version of the client has network errors of its own
        if refused := refusal(f"dataset {settings.name}", settings.revision, error):
            raise DataError(refused) from None
        return _cached(settings, error)


def refusal(what: str, revision: str, error: Exception) -> str:
    """Why the hub does not give `what`, in a sentence; empty where it could not be asked at all."""
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
            f"{what}: there is none of this name, or it is private; for a private one set "
            "HF_TOKEN to a token that may read it"
        )
    return ""


def download(
    what: str,
    name: str,
    revision: str,
    patterns: Sequence[str],
    advice: str,
    repo_type: str = "model",
) -> Path:
    """The folder, in the hub's cache, of a repository's files that match `patterns`; without a
    network, what is there already. The folder's name is the commit.

    `what` names it in messages and `advice` ends the one for a hub that is not reached. Raises
    DataError, in a sentence, where it cannot be had.
    """
    import huggingface_hub

    try:
        return Path(
            huggingface_hub.snapshot_download(
                name,
                revision=revision,
                allow_patterns=list(patterns),
                token=hub_token(),
                etag_timeout=TIMEOUT_S,
                repo_type=repo_type,
            )
        )
    except Exception as error:  # each version of the client has network errors of its own
        if refused := refusal(what, revision, error):
            raise DataError(refused) from None
        raise DataError(
            f"{what} at {revision}: the hub cannot be reached ({first_line(error)}) and the local "
            f"cache has no copy; give this machine network access (on a cluster: another "
            f"partition, or on_driver: [short, downloads]), or {advice}"
        ) from None


def _cached(settings: Hub, unreachable: Exception) -> _Place:
    """The hub cache's copy of exactly this revision. Raises DataError where there is none."""
    import huggingface_hub

    try:
        folder = huggingface_hub.snapshot_download(
            settings.name, repo_type="dataset", revision=settings.revision, local_files_only=True
        )
    except Exception:
        raise DataError(
            f"dataset {settings.name} at {settings.revision}: the hub cannot be reached "
            f"({first_line(unreachable)}) and the local cache has no copy; give this machine "
            "network access, or fetch once on a machine that has it and set HF_HOME to that cache, "
            "or set `dataset` to the generated one or to a local folder"
        ) from None
    return _Place(folder, Path(folder).name, None)


def hub_token() -> str | bool:
    """The token of the environment; False forbids any that is stored on the machine."""
    return os.environ.get("HF_TOKEN") or False


def _load(settings: Hub, place: _Place) -> dict[str, Any]:
    """The splits, as tables of the `datasets` library."""
    import datasets

    datasets.disable_progress_bars()
    options = {"revision": place.revision, "token": hub_token()} if place.revision else {}
    try:
        return dict(datasets.load_dataset(place.path, settings.config, **options))
    except OSError as error:
        if error.errno is not None:
            raise
        raise DataError(f"dataset {settings.name}: {first_line(error)}") from None
    except Exception as error:  # from a wrong config's name to a broken file
        raise DataError(f"dataset {settings.name}: {first_line(error)}") from None


def _columns(name: str, settings: Hub, split: str, table: Any) -> dict[str, str]:
    """Our columns to theirs: the schema's by their own names, then as the settings map them."""
    origin = f"datasets.{name}.columns"
    if "caption" not in settings.columns:
        raise ConfigError(f"{origin}.caption: missing, but required")
    for own in settings.columns.keys() & (set(OWN) - {_IMAGE}):
        raise ConfigError(f"{origin}.{own}: this column is made by the suite itself")
    columns = {key: key for key in SCHEMA if key in table.column_names}
    columns |= {_IMAGE: _IMAGE, **settings.columns}
    for ours, theirs in columns.items():
        if theirs not in table.column_names:
            raise ConfigError(
                f"{origin}.{ours}: split {split} of {settings.name} has no column {theirs!r}; "
                f"it has: {', '.join(table.column_names)}"
            )
    return columns


def _undecoded(name: str, table: Any, column: str) -> Any:
    """The table with its images as {"bytes", "path"}."""
    import datasets

    if not isinstance(table.features[column], datasets.Image):
        raise ConfigError(
            f"datasets.{name}.columns.{_IMAGE}: {column!r} is no column of images, "
            f"it holds {table.features[column]}"
        )
    return table.cast_column(column, datasets.Image(decode=False))
