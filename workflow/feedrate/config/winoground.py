"""Where the examples of Winoground come from: pairs of images and of captions, the same words in
another order."""

from typing import Annotated

from msgspec import Meta

from feedrate.config.base import Count, Natural, Strict


class GeneratedExamples(Strict, tag_field="source", tag="generated", kw_only=True):
    """A stand-in: drawn pairs of cartoons whose figures have changed places."""

    seed: Annotated[Natural, Meta(description="All drawings follow from it.")] = 20
    examples: Annotated[Count, Meta(description="Pairs of drawings.")] = 100


class LocalExamples(Strict, tag_field="source", tag="folder", kw_only=True):
    """A copy on this machine, of the hub's columns."""

    path: Annotated[
        str,
        Meta(
            description="Folder with *.parquet or *.jsonl files, or one such file; images that a "
            "table names lie beside it, or in images/ there.",
            min_length=1,
        ),
    ]


class HubExamples(Strict, tag_field="source", tag="hub", kw_only=True):
    """The hub's, at one revision; its owner must grant access."""

    name: Annotated[str, Meta(description="Repository on the hub.", min_length=1)]
    revision: Annotated[
        str, Meta(description="Commit, tag or branch; a commit is reproducible.", min_length=1)
    ]


Examples = GeneratedExamples | LocalExamples | HubExamples
