"""A dataset of the Hugging Face hub at one revision; its encoded images are written to files."""

from contextlib import suppress
from pathlib import Path
from typing import Any

from feedrate.config.errors import ConfigError
from feedrate.config.workflow import Hub
from feedrate.core.errors import first_line
from feedrate.data import hub
from feedrate.data.fetch import EmbeddedImages, ListedFiles
from feedrate.data.manifest import DataError, Fetched, LeftOut
from feedrate.data.tables import SCHEMA, split_named

_IMAGE = "image"
_NO_IMAGE = "no image, one that is too large, or a file that is not in the dataset's own folder"
_ADVICE = (
    "fetch once on a machine that has it and set HF_HOME to that cache, or set `dataset` to the "
    "generated one or to a local folder"
)


def fetch(name: str, settings: Hub, raw: Path) -> Fetched:
    """Load a dataset by revision and write its images, undecoded, into raw/images. `settings.name`
    may be a local folder in the hub's layout. No code of the dataset is run. Raises DataError, and
    ConfigError for a wrong column."""
    import datasets

    path, commit = _find(settings)
    images, listed = EmbeddedImages(raw), ListedFiles(_own_folder(settings))
    rows: list[dict[str, Any]] = []
    left_out: list[LeftOut] = []
    for key, table in _load(settings, path, commit).items():
        split = split_named(key)
        if split is None:
            reason = "the split is not train, validation or test"
            left_out.append(LeftOut(path=key, reason=reason, rows=len(table)))
            continue
        columns = _columns(name, settings, key, table)
        undecoded = table.cast_column(columns[_IMAGE], datasets.Image(decode=False))
        for number, row in enumerate(undecoded, start=1):
            where = f"{key}, row {number}"
            mapped = {ours: row[theirs] for ours, theirs in columns.items()}
            mapped[_IMAGE] = images.write(row[columns[_IMAGE]], listed)
            if mapped[_IMAGE] is None:
                left_out.append(LeftOut(path=where, reason=_NO_IMAGE))
            else:
                rows.append(mapped | {"split": split, "origin": where})
    return Fetched(rows=rows, files=images.written(), left_out=left_out, revision=commit)


def _find(settings: Hub) -> tuple[str, str | None]:
    """The repository or folder to load, and its commit; without the hub, the cache's copy."""
    import huggingface_hub

    if Path(settings.name).is_dir():
        return settings.name, None
    what = f"dataset {settings.name}"
    try:
        api = huggingface_hub.HfApi(token=hub.token())
        info = api.dataset_info(settings.name, revision=settings.revision, timeout=hub.TIMEOUT_S)
        return settings.name, info.sha
    except Exception as error:  # each version of the client has its own network errors
        if not hub.refusal(what, settings.revision, error):
            with suppress(Exception):
                options: Any = {"repo_type": "dataset", "revision": settings.revision}
                options |= {"local_files_only": True}
                folder = huggingface_hub.snapshot_download(settings.name, **options)
                return folder, Path(folder).name
        raise hub.unavailable(what, settings.revision, error, _ADVICE) from None


def _own_folder(settings: Hub) -> Path:
    """The folder of the files that tables may name: the user's, or the dataset's in the cache."""
    from huggingface_hub.constants import HF_HUB_CACHE
    from huggingface_hub.file_download import repo_folder_name

    if (local := Path(settings.name)).is_dir():
        return local.resolve()
    name = repo_folder_name(repo_id=settings.name, repo_type="dataset")
    return Path(HF_HUB_CACHE, name).resolve()


def _load(settings: Hub, path: str, commit: str | None) -> dict[str, Any]:
    """The splits, as tables of the `datasets` library."""
    import datasets

    datasets.disable_progress_bars()
    options = {} if Path(path).is_dir() else {"revision": commit, "token": hub.token()}
    try:
        return dict(datasets.load_dataset(path, settings.config, **options))
    except Exception as error:  # from a wrong config's name to a broken file
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise DataError(f"dataset {settings.name}: {first_line(error)}") from None


def _columns(name: str, settings: Hub, split: str, table: Any) -> dict[str, str]:
    """Our columns to theirs: the schema's columns keep their names unless the settings map them."""
    import datasets

    columns = {column: column for column in SCHEMA if column in table.column_names}
    columns |= {_IMAGE: _IMAGE, **settings.columns}
    for ours, theirs in columns.items():
        key = f"datasets.{name}.columns.{ours}"
        if theirs not in table.column_names:
            known = ", ".join(table.column_names)
            what = f"split {split} of {settings.name} has no column {theirs!r}; it has: {known}"
            raise ConfigError(f"{key}: {what}")
        if ours == _IMAGE and not isinstance(table.features[theirs], datasets.Image):
            what = f"{theirs!r} is not a column of images; it holds {table.features[theirs]}"
            raise ConfigError(f"{key}: {what}")
    return columns
