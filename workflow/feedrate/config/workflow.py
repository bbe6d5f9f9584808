"""config/config.yaml: which studies, on which devices, with which data."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from feedrate.config.base import Count, Name, Natural, Share, Strict

# Where the examples of Winoground come from: pairs of images and of captions, the same words in
# another order.


class GeneratedExamples(Strict, tag_field="source", tag="generated", kw_only=True):
    """A stand-in: drawn pairs of cartoons that differ in who stands where."""

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


class Generated(Strict, tag_field="source", tag="generated", kw_only=True):
    """Drawn cartoons, made on this machine; the same bytes for the same settings."""

    seed: Natural = 20
    train: Annotated[Count, Meta(description="Rows in the training split.")] = 480
    validation: Annotated[Count, Meta(description="Rows in the validation split.")] = 120
    test: Annotated[Count, Meta(description="Rows in the test split.")] = 120
    grey_share: Annotated[Share, Meta(description="Share of one-channel JPEG files.")] = 0.6
    max_bad_share: Annotated[
        Share, Meta(description="Share of bad image files from which a run stops.")
    ] = 0.05


class Folder(Strict, tag_field="source", tag="folder", kw_only=True):
    """Images and captions of your own."""

    path: Annotated[str, Meta(description="Folder with the images and the tables.", min_length=1)]
    tables: Annotated[
        str, Meta(description="Glob of CSV, TSV, JSONL or Parquet files under `path`.")
    ] = "*.csv"
    image: Annotated[
        str,
        Meta(description="Path of a row's image under `path`; {column} stands for its value."),
    ] = "{image}"
    columns: Annotated[
        dict[str, str],
        Meta(description="Our column to yours: caption (needed), contest_number, rank, score, …"),
    ] = msgspec.field(default_factory=lambda: {"caption": "caption"})
    split: Annotated[
        str | None, Meta(description="Column that names train, validation or test; null: shares.")
    ] = None
    validation_share: Share = 0.1
    test_share: Share = 0.1
    seed: Annotated[Natural, Meta(description="Seed of the split by contest or image.")] = 20
    limit_per_image: Annotated[
        Count | None, Meta(description="Take at most so many captions of an image.")
    ] = None
    max_bad_share: Annotated[
        Share, Meta(description="Share of bad image files from which a run stops.")
    ] = 0.05


class Hub(Strict, tag_field="source", tag="hub", kw_only=True):
    """A dataset of the hub, at one revision."""

    name: Annotated[str, Meta(description="Repository on the hub.", min_length=1)]
    config: str | None = None
    revision: Annotated[
        str, Meta(description="Commit, tag or branch; a commit is reproducible.", min_length=1)
    ]
    columns: Annotated[dict[str, str], Meta(description="Our column to theirs.")] = msgspec.field(
        default_factory=lambda: {"caption": "image_description"}
    )
    max_bad_share: Annotated[
        Share, Meta(description="Share of bad image files from which a run stops.")
    ] = 0.05


Dataset = Generated | Folder | Hub


class WorkflowConfig(Strict, kw_only=True):
    """The whole of config/config.yaml."""

    studies: Annotated[list[Name], Meta(description="Files in config/studies.", min_length=1)]
    devices: Annotated[
        list[Name],
        Meta(
            description="Entries of devices.yaml; `detected`: the accelerators of this machine.",
            min_length=1,
        ),
    ]
    dataset: Annotated[Name, Meta(description="Which of `datasets` the jobs train on.")]
    datasets: Annotated[dict[Name, Dataset], Meta(description="Datasets by name.")]
    winoground: Annotated[
        Name | None,
        Meta(description="Which of `winoground_sets` kept models are scored on; null: none."),
    ] = None
    winoground_sets: Annotated[
        dict[Name, Examples], Meta(description="Copies of Winoground by name.")
    ] = msgspec.field(default_factory=dict)
    checkpoint: Annotated[
        str | None, Meta(description="Checkpoint for all studies; null: as each study says.")
    ] = None
    checkpoint_revision: str | None = None
    checkpoint_model: Annotated[
        Name | None,
        Meta(
            description="The model that it is of; studies of others do not take it. null: all do."
        ),
    ] = None
    repeats: Annotated[
        Count | None, Meta(description="Repeats for all studies; null: as each study says.")
    ] = None
    push_to_hub: Annotated[
        str | None,
        Meta(description="Hub repository for cells' models and cards; the token is HF_TOKEN."),
    ] = None
    on_driver: Annotated[
        list[Literal["short", "downloads"]],
        Meta(description="What runs beside Snakemake itself rather than as a job of Slurm."),
    ] = msgspec.field(default_factory=lambda: ["short"])
