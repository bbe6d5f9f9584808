"""Winoground as it is stored: examples.json with its images, each with a checksum.

An example has two images and two captions of the same words, of which each describes one image
(Thrush et al. 2022, arXiv 2204.03162).
"""

from pathlib import Path
from typing import Annotated

from msgspec import Meta

from feedrate.config.values import Strict
from feedrate.data.manifest import check_file, read_document

WINOGROUND_SCHEMA = 2


class Example(Strict, frozen=True, kw_only=True):
    """One example; the columns are the hub's, the images paths in the folder of examples.json."""

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
    """examples.json; written last, so its presence means that the folder is complete."""

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
        details = {"folder": f" ({self.name})", "hub": f" ({self.origin} at {self.revision})"}
        return f"{self.source}{details.get(self.source, '')}"


def read_winoground(path: Path) -> Winoground:
    """Read examples.json and compare its images with their checksums.

    Raises DataError that names what is missing or differs.
    """
    found = read_document(path, Winoground, "Winoground has not been fetched")
    for image, sha256 in found.sha256.items():
        check_file(path.parent, image, sha256)
    return found
