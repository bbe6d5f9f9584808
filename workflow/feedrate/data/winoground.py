"""Winoground as it lies on this machine: examples.json with its images, each with a checksum.

An example has two images and two captions of the same words, of which each describes one image
(Thrush et al. 2022, arXiv 2204.03162).
"""

from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from feedrate.config.values import Strict
from feedrate.core.files import digest_file
from feedrate.data.manifest import DataError

WINOGROUND_SCHEMA = 2


class Example(Strict, frozen=True, kw_only=True):
    """One example; the columns are the hub's, the images paths beside examples.json."""

    id: int
    image_0: str
    image_1: str
    caption_0: Annotated[str, Meta(description="Describes image_0.")]
    caption_1: Annotated[str, Meta(description="Describes image_1.")]
    tag: str = ""
    secondary_tag: str = ""
    num_main_preds: int | None = None
    collapsed_tag: str = ""

    @property
    def images(self) -> tuple[str, str]:
        """Both images."""
        return self.image_0, self.image_1

    @property
    def captions(self) -> tuple[str, str]:
        """Both captions."""
        return self.caption_0, self.caption_1


class Winoground(Strict, frozen=True, kw_only=True):
    """examples.json; written last, so its presence means that fetching was complete."""

    schema: int = WINOGROUND_SCHEMA
    name: Annotated[str, Meta(description="As config.yaml names this copy.")]
    source: Annotated[str, Meta(description="generated, folder or hub.")]
    origin: Annotated[str | None, Meta(description="The hub's repository.")]
    revision: Annotated[str | None, Meta(description="Its commit.")] = None
    examples: list[Example]
    sha256: Annotated[dict[str, str], Meta(description="Of every image, by path.")]

    @property
    def described(self) -> str:
        """Which copy it is: `generated`, `folder (NAME)` or `hub (REPOSITORY at COMMIT)`."""
        told = {"folder": f" ({self.name})", "hub": f" ({self.origin} at {self.revision})"}
        return f"{self.source}{told.get(self.source, '')}"


def read_winoground(path: Path) -> Winoground:
    """Read examples.json and hold its images against their checksums.

    Raises DataError that names what is missing or differs.
    """
    try:
        found = msgspec.json.decode(path.read_bytes(), type=Winoground)
    except FileNotFoundError:
        raise DataError(f"{path}: no such file; Winoground has not been fetched") from None
    except ValueError as error:
        raise DataError(f"{path}: not of this version ({error}); delete it") from None
    again = f"delete the folder {path.parent} and run again"
    for image, sha256 in found.sha256.items():
        try:
            if digest_file(path.parent / image) != sha256:
                raise DataError(f"{path.parent / image} is not as it was fetched: {again}")
        except OSError as error:
            raise DataError(f"{path.parent / image}: {error.strerror}; {again}") from None
    return found
