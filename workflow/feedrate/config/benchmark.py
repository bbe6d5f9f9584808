"""Published scores on Winoground as data: which model, which head, and who says so."""

from pathlib import Path
from typing import Annotated

from msgspec import Meta

from feedrate.config.base import Name, Strict
from feedrate.config.csv_rows import read_rows

_SCORES = ("text_score", "image_score", "group_score")
Percent = Annotated[float, Meta(ge=0, le=100)]


class BenchmarkScore(Strict, kw_only=True):
    """One row of a file of `published_scores`: a model's three scores on Winoground."""

    id: Annotated[Name, Meta(description="Name that is unique in the file.")]
    model: Annotated[str, Meta(description="As the source calls it.", min_length=1)]
    head: Annotated[
        str, Meta(description="What scores a pair: matching, contrastive, …; empty: not said.")
    ] = ""
    text_score: Annotated[Percent, Meta(description="Per cent.")]
    image_score: Percent
    group_score: Percent
    edition: Annotated[str, Meta(description="Which state of the source, as YYYY-MM.")]
    source: Annotated[str, Meta(description="Title or address of the source.", min_length=1)]
    note: str = ""


def read_scores(path: Path, origin: str = "") -> list[BenchmarkScore]:
    """Read one CSV of published scores; `origin` is the file's name in messages.

    Raises ConfigError naming file, line and column for each wrong row.
    """
    return read_rows(path, BenchmarkScore, _SCORES, {}, origin or str(path))
