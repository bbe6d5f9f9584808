"""The store of the level `cache`: pictures decoded and resized once, captions tokenised once.

It is a folder with `pixels.npy` (uint8, one picture after the other, grey ones with one channel),
`<split>.npy` for each split (int32: picture, token numbers, attention mask of each row), and
`index.json`, which says what the store was made from and holds the checksums.
"""

from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from feedrate.config.settings import ModelSettings, Settings
from feedrate.config.values import Strict
from feedrate.core.files import digest_file, digest_value
from feedrate.data.manifest import MANIFEST, DataError, check_file, read_document

STORE_SCHEMA = 1
"""Version of the files; raise it when they change."""

INDEX, PIXELS, PICTURES = "index.json", "pixels.npy", "pictures.npy"
"""Files of a store. pictures.npy (int64) has a row for each picture: where it starts in pixels.npy,
its channels, height and width there, and height and width in its file."""


class StoreSpec(Strict, kw_only=True):
    """All that a store depends on except its data; another store is made when this changes."""

    schema: int = STORE_SCHEMA
    model: Annotated[
        ModelSettings, Meta(description="Determines the size of images and the tokenizer.")
    ]
    max_tokens: int
    label: Annotated[str, Meta(description="Column with the classes, for a classifier.")]
    scaled_decode: bool
    whole: Annotated[
        bool,
        Meta(description="Whole pictures, larger than the crop, so that it can be a random one."),
    ]

    @property
    def key(self) -> str:
        """The store's folder name."""
        return digest_value(msgspec.to_builtins(self))[:12]


def store_spec(settings: Settings) -> StoreSpec | None:
    """What the store for a run with these settings is made for; None: the run needs no store."""
    loader = settings.loader
    if loader.decode != "cache":
        return None
    model = settings.model
    return StoreSpec(
        # The rest (attention, layout, …) changes neither pixels nor tokens.
        model=ModelSettings(
            name=model.name,
            size=model.size,
            checkpoint=model.checkpoint,
            revision=model.revision,
            image_px=model.image_px,
        ),
        max_tokens=loader.max_tokens,
        label=loader.label,
        scaled_decode=loader.scaled_decode,
        whole=loader.random_crop > 0,
    )


def store_folder(settings: Settings, prepared: Path) -> Path | None:
    """The folder of the store that these settings need; None: they need none."""
    spec = store_spec(settings)
    return prepared.parent / "store" / spec.key if spec else None


class StoreIndex(Strict, kw_only=True):
    """index.json."""

    spec: StoreSpec
    manifest: Annotated[str, Meta(description="SHA-256 of the prepared data's manifest.")]
    image_px: int
    pictures: int
    size_bytes: Annotated[int, Meta(description="Of pixels.npy.")]
    files: Annotated[dict[str, str], Meta(description="SHA-256 of each file.")]


def read_index(folder: Path) -> StoreIndex:
    """Read a store's index. Raises DataError if it is missing or of another version."""
    missing = "decode: cache needs the store that the rule store_dataset makes"
    return read_document(folder / INDEX, StoreIndex, missing)


def index_of(folder: Path) -> StoreIndex:
    """Read a store's index. Raises DataError if the store was made from other prepared data."""
    index = read_index(folder)
    if digest_file(folder.parent.parent / "prepared" / MANIFEST) != index.manifest:
        raise DataError(f"{folder} was made from other data; delete it and run again")
    return index


def check_store(folder: Path) -> None:
    """Compare every file of a store with its index.

    Raises DataError that names the first file that differs and says what to do.
    """
    for name, sha256 in index_of(folder).files.items():
        check_file(folder, name, sha256)
