"""What fetching leaves behind: raw/index.json, a checksum for every file that it tells of."""

from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from feedrate.config.base import Strict
from feedrate.data.manifest import DataError
from feedrate.files import write_json

RAW_SCHEMA = 1
ROWS = "rows.parquet"
MAX_FILE_BYTES = 256 * 2**20
"""A larger file is no picture of a data set; it is left out unread."""


class RawFile(Strict, frozen=True, kw_only=True):
    """One fetched file."""

    path: Annotated[str, Meta(description="Under the index's root.")]
    size: Annotated[int, Meta(description="Bytes.")]
    sha256: str


class LeftOut(Strict, frozen=True, kw_only=True):
    """Something that did not become a sample, and why."""

    path: Annotated[str, Meta(description="The image, or the table and row.")]
    reason: str
    rows: Annotated[int, Meta(description="Rows that are lost by it.")] = 1


class RawIndex(Strict, frozen=True, kw_only=True):
    """raw/index.json; written last, so its presence means that fetching was complete."""

    schema: int = RAW_SCHEMA
    dataset: str
    source: Annotated[str, Meta(description="generated, folder or hub.")]
    root: Annotated[
        str, Meta(description="Absolute folder of the images; empty: the index's own folder.")
    ] = ""
    revision: Annotated[str | None, Meta(description="The hub's commit.")] = None
    rows: Annotated[RawFile, Meta(description="The rows, beside the index.")]
    files: Annotated[list[RawFile], Meta(description="Every image that a row names, once.")]
    left_out: list[LeftOut]


class Fetched(Strict, frozen=True, kw_only=True):
    """What a source gives: rows whose `image` is a path under `root`, and those images."""

    rows: list[dict[str, Any]]
    files: list[RawFile]
    left_out: list[LeftOut]
    root: str = ""
    revision: str | None = None


def write_index(path: Path, index: RawIndex) -> None:
    """Write raw/index.json."""
    write_json(path, msgspec.to_builtins(index))


def read_index(path: Path) -> RawIndex:
    """Read raw/index.json. Raises DataError where it is missing or not an index."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=RawIndex)
    except FileNotFoundError:
        raise DataError(f"{path}: no such file; the dataset has not been fetched") from None
    except (ValueError, msgspec.ValidationError) as error:
        raise DataError(f"{path}: not an index of this version ({error}); delete it") from None


def image_root(path: Path, index: RawIndex) -> Path:
    """The folder under which the images of the index at `path` lie."""
    return Path(index.root) if index.root else path.parent
