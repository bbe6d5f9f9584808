"""A dataset of the Hugging Face hub at one revision; its encoded images are written to files."""

from contextlib import suppress
from pathlib import Path
from typing import Any

from feedrate.config.errors import ConfigError
from feedrate.config.workflow import Hub
from feedrate.core.errors import first_line
from feedrate.data import hub
from feedrate.data.fetch import EmbeddedImages, ListedFiles
from feedrate.data.manifest import DataError, Fetched, LeftOut, Unusable
from feedrate.data.tables import SCHEMA, split_named

_IMAGE = "image"
_ADVICE = (
    "fetch once on a machine that has it and set HF_HOME to that cache, or set `dataset` to the "
    "generated one or to a local folder"
)


def fetch(name: str, settings: Hub, raw: Path) -> Fetched:
    """Load a dataset by revision and write its images, undecoded, into raw/images. `settings.name`
    may be a local folder in the hub's layout. No code of the dataset is run. Raises DataError, and
    ConfigError for a wrong column."""
    import datasets
    from huggingface_hub.constants import HF_HUB_CACHE

    path, commit = _find(settings)
    # The files that tables may name: the user's, or the hub's cache, where datasets share files.
    own = Path(settings.name) if Path(settings.name).is_dir() else Path(HF_HUB_CACHE)
    images, listed = EmbeddedImages(raw), ListedFiles(own.resolve())
    rows: list[dict[str, Any]] = []
    left_out: list[LeftOut] = []
    for key, table in _load(settings, path, commit).items():
        try:
            split = split_named(key, "split")
        except Unusable as reason:
            left_out.append(LeftOut(path=key, reason=str(reason), rows=len(table)))
            continue
        columns = _columns(name, settings, key, table)
        undecoded = table.cast_column(columns[_IMAGE], datasets.Image(decode=False))
        for number, row in enumerate(undecoded, start=1):
            place = f"{key}, row {number}"
            mapped = {ours: row[theirs] for ours, theirs in columns.items()}
            try:
                mapped[_IMAGE] = images.write(row[columns[_IMAGE]], listed)
                rows.append(mapped | {"split": split, "origin": place})
            except Unusable as reason:
                left_out.append(LeftOut(path=place, reason=str(reason), images=1))
    return Fetched(rows=rows, files=images.written(), left_out=left_out, revision=commit)


def _find(settings: Hub) -> tuple[str, str | None]:
    """The repository or folder to load, and its commit; without the hub, the cache's copy."""
    import huggingface_hub

    if Path(settings.name).is_dir():
        return settings.name, None
    subject = f"dataset {settings.name}"
    try:
        api = huggingface_hub.HfApi(token=hub.token())
        info = api.dataset_info(settings.name, revision=settings.revision, timeout=hub.TIMEOUT_S)
        return settings.name, info.sha
    except Exception as error:  # each version of the client has its own network errors
        if not hub.refusal(subject, settings.revision, error):
            with suppress(Exception):
                folder = huggingface_hub.snapshot_download(
                    settings.name,
                    repo_type="dataset",
                    revision=settings.revision,
                    local_files_only=True,
                )
                return folder, Path(folder).name
        raise hub.unavailable(subject, settings.revision, error, _ADVICE) from None


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

    features = table.features
    kinds: dict[str, Any] = dict.fromkeys(SCHEMA, datasets.Value | datasets.ClassLabel)
    kinds["caption_choices"] = datasets.List
    columns = {ours: ours for ours, kind in kinds.items() if isinstance(features.get(ours), kind)}
    columns |= {_IMAGE: _IMAGE, **settings.columns}
    for ours, theirs in columns.items():
        key = f"datasets.{name}.columns.{ours}"
        if theirs not in table.column_names:
            names = ", ".join(table.column_names)
            text = f"split {split} of {settings.name} has no column {theirs!r}; it has: {names}"
            raise ConfigError(f"{key}: {text}")
        if ours == _IMAGE and not isinstance(features[theirs], datasets.Image):
            text = f"{theirs!r} is not a column of images; it holds {features[theirs]}"
            raise ConfigError(f"{key}: {text}")
    return columns
