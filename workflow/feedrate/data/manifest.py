"""The files that describe a dataset's folders, each written last: raw/index.json lists what was
fetched, prepared/manifest.json what jobs train on, and index.json of a store what `decode: cache`
reads: pictures decoded and resized once, and captions tokenised once."""

import json
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec

from feedrate.config.settings import ModelSettings, Settings
from feedrate.config.values import Strict, about, copy_fields
from feedrate.core.errors import ExpectedError
from feedrate.core.files import digest_file, digest_value

Document = TypeVar("Document")

SPLITS = ("train", "validation", "test")
ROWS = "rows.parquet"  # in raw/: the rows as fetched
MANIFEST, SAMPLES, CHECKSUMS = "manifest.json", "samples.parquet", "checksums.json"
IMAGES, TOKENIZER, REPORT = "images", "tokenizer", "data_report.json"
"""In prepared/."""

STORE_INDEX, PIXELS, PICTURES = "index.json", "pixels.npy", "pictures.npy"
"""In a store. pixels.npy (uint8): one picture after the other, grey ones with one channel.
pictures.npy (int64): for each picture its start in pixels.npy, and its channels. `<split>.npy`
(int32): by row its picture, tokens and mask."""

CAPTION = "caption"
MAX_FILE_BYTES = 256 * 2**20  # a larger image file is left out unread


class DataError(ExpectedError):
    """The data cannot be used; the message says why and what to do."""


class Unusable(Exception):
    """A row, a file or an image is left out; the message is the reason."""


@contextmanager
def reading_file() -> Iterator[None]:
    """Raise Unusable, in place of the errors of a file that cannot be read."""
    try:
        yield
    except (FileNotFoundError, NotADirectoryError):
        raise Unusable("missing file") from None
    except OSError as error:
        raise Unusable((error.strerror or str(error)).lower()) from None
    except (ValueError, RuntimeError):  # a NUL in the name; a loop of links before Python 3.13
        raise Unusable("not a path of a file") from None


def read_regular(path: Path) -> bytes:
    """The bytes of a regular file that is not too large; other files could block. Raises OSError,
    Unusable."""
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        raise Unusable("not a regular file")
    check_size(status.st_size)
    return path.read_bytes()


def check_size(size_bytes: int) -> None:
    """An image file is not too large. Raises Unusable."""
    if size_bytes > MAX_FILE_BYTES:
        raise Unusable(f"larger than {MAX_FILE_BYTES // 2**20} MiB")


class RawFile(Strict, frozen=True, kw_only=True):
    """One fetched file."""

    path: Annotated[str, about("Under the index's root.")]
    sha256: str


class LeftOut(Strict, frozen=True, kw_only=True):
    """Something that did not become a sample, and the reason."""

    path: Annotated[str, about("The image, or the table and row.")]
    reason: str
    rows: Annotated[int, about("Rows that are lost by it.")] = 1
    images: Annotated[int, about("1 if it is an image.")] = 0


class Fetched(Strict, frozen=True, kw_only=True):
    """The result of a source: rows whose `image` is a path under `root`, and those images."""

    rows: list[dict[str, Any]]
    files: list[RawFile]
    left_out: list[LeftOut]
    root: str = ""
    revision: str | None = None


class RawIndex(Strict, frozen=True, kw_only=True):
    """raw/index.json; raise `schema`, here and below, when the files of the folder change."""

    schema: int = 3
    dataset: str
    source: Annotated[str, about("generated, folder or hub.")]
    root: Annotated[str, about("Absolute folder of the images; empty: the index's own.")] = ""
    revision: Annotated[str | None, about("The hub's commit.")] = None
    rows: Annotated[RawFile, about("The rows, in the index's folder.")]
    images_read: Annotated[int, about("Images that the source's rows name.")]
    rows_read: Annotated[int, about("Rows of the source, also those left out or above a limit.")]
    files: Annotated[list[RawFile], about("Every image that a row names, once.")]
    left_out: list[LeftOut]


class SplitCount(Strict, kw_only=True):
    """Counts of one split."""

    rows: int
    images: int


class Manifest(Strict, kw_only=True):
    """prepared/manifest.json: small, and the same for the same data, whenever and wherever."""

    schema: int = 2
    dataset: str
    splits: dict[str, SplitCount]
    files: Annotated[dict[str, str], about("SHA-256 of all files but images and data_report.json.")]
    images: Annotated[int, about("Image files in images/.")]


class StoreSpec(Strict, kw_only=True):
    """Everything that a store depends on, except its data. A change here makes another store."""

    schema: int = 1
    model: Annotated[ModelSettings, about("Determines the size of images and the tokenizer.")]
    max_tokens: int
    label: Annotated[str, about("Column with the classes, for a classifier.")]
    scaled_decode: bool

    @property
    def key(self) -> str:
        """The end of the store's folder name."""
        return digest_value(msgspec.to_builtins(self))[:12]


class StoreIndex(Strict, kw_only=True):
    """index.json of a store."""

    spec: StoreSpec
    manifest: Annotated[str, about("SHA-256 of the prepared data's manifest.")]
    image_px: int
    pictures: int
    size_bytes: Annotated[int, about("Of pixels.npy.")]
    files: Annotated[dict[str, str], about("SHA-256 of each file.")]


def store_spec(settings: Settings) -> StoreSpec | None:
    """The store that a run with these settings reads; None: it reads no store."""
    if settings.loader.decode != "cache":
        return None
    # The rest of the model (attention, layout, …) changes neither pixels nor tokens.
    names = ("name", "size", "checkpoint", "revision", "image_px")
    model = ModelSettings(**{name: getattr(settings.model, name) for name in names})
    return copy_fields(StoreSpec, settings.loader, model=model)


def store_folder(settings: Settings, prepared: Path) -> Path | None:
    """The folder of a run's store; None: it reads no store."""
    spec = store_spec(settings)
    return prepared / f"store-{spec.key}" if spec else None


def read_index(path: Path) -> RawIndex:
    """Read raw/index.json. Raises DataError."""
    return read_document(path, RawIndex, "the dataset has not been fetched")


def read_manifest(path: Path) -> Manifest:
    """Read prepared/manifest.json. Raises DataError."""
    return read_document(path, Manifest, "the dataset has not been prepared")


def read_store(folder: Path) -> StoreIndex:
    """Read a store's index. Raises DataError, also if it was made from other prepared data."""
    missing = "decode: cache needs the store that the rule store_dataset makes"
    index = read_document(folder / STORE_INDEX, StoreIndex, missing)
    if digest_file(folder.parent / MANIFEST) != index.manifest:
        raise DataError(f"{folder} was made from other data; delete it and run again")
    return index


def read_document(path: Path, kind: type[Document], missing: str) -> Document:
    """Read a JSON file of type `kind`. Raises DataError; `missing`: what follows from no file."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except FileNotFoundError:
        raise DataError(f"{path}: no such file; {missing}") from None
    except ValueError as error:
        again = f"delete the folder {path.parent} and run again"
        raise DataError(f"{path}: not of this version ({error}): {again}") from None


def check_prepared(folder: Path) -> Manifest:
    """Compare every file of prepared data with its SHA-256. Raises DataError."""
    manifest = read_manifest(folder / MANIFEST)
    check_files(folder, manifest.files)
    images: dict[str, str] = json.loads((folder / CHECKSUMS).read_text("utf-8"))
    check_files(folder, images)
    present = {p.relative_to(folder).as_posix() for p in (folder / IMAGES).rglob("*.jpg")}
    if unknown := sorted(present - images.keys()):
        raise _damaged(folder, unknown[0], "is not in the manifest")
    return manifest


def check_store(folder: Path) -> None:
    """Compare every file of a store with its index. Raises DataError."""
    check_files(folder, read_store(folder).files)


def check_files(folder: Path, files: Mapping[str, str]) -> None:
    """Compare files with their SHA-256, by name. Raises DataError."""
    for name, sha256 in sorted(files.items()):
        try:
            if digest_file(folder / name) != sha256:
                raise _damaged(folder, name, "does not match its recorded checksum")
        except OSError as error:
            raise _damaged(folder, name, f"cannot be read ({error.strerror})") from None


def _damaged(folder: Path, name: str, how: str) -> DataError:
    return DataError(f"{folder / name} {how}: delete the folder {folder} and run again")
