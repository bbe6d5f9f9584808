"""config/config.yaml: the studies to run, the devices and the data."""

from collections.abc import Iterable, Mapping
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from feedrate.config.devices import DETECTED, Device
from feedrate.config.errors import Origin, Problems, numbered
from feedrate.config.settings import BUILDERS
from feedrate.config.spec import Most, RunSpec
from feedrate.config.values import Count, Name, Natural, Repeats, Share, Strict, Text, about
from feedrate.core import plugins

Integration = Literal[
    "azure_ml", "clearml", "codecarbon", "comet_ml", "dagshub", "dvclive", "flyte", "mlflow",
    "neptune", "swanlab", "tensorboard", "trackio", "wandb",
]  # fmt: skip
"""The Trainer's integrations for reports."""
Repository = Annotated[Text, about("Repository on the hub.")]
Revision = Annotated[Text, about("Commit, tag or branch; only a commit is reproducible.")]
BadShare = Annotated[Share, about("Share of images or rows left out above which a run stops.")]


class GeneratedExamples(Strict, tag_field="source", tag="generated", kw_only=True):
    """A stand-in for Winoground: pairs of drawn cartoons whose figures change places."""

    seed: Annotated[Natural, about("Determines all drawings.")] = 20
    examples: Annotated[Count, about("Pairs of drawings.")] = 100


class LocalExamples(Strict, tag_field="source", tag="folder", kw_only=True):
    """A copy of Winoground on this machine, with the same columns as on the hub."""

    path: Annotated[Text, about("Folder with *.parquet files, or one such file.")]


class HubExamples(Strict, tag_field="source", tag="hub", kw_only=True):
    """Winoground on the hub, at one revision; its owner must grant access."""

    name: Repository
    revision: Revision


Examples = GeneratedExamples | LocalExamples | HubExamples


OWN_COLUMNS = ("image", "sample_id", "split", "origin")
"""Columns that the suite makes itself; a hub dataset may map the first to a column of its own."""

FEWEST_ROWS = 480  # training rows of the generated dataset, where that is enough


class Generated(Strict, tag_field="source", tag="generated", kw_only=True):
    """Cartoons drawn on this machine; the same bytes for the same settings."""

    seed: Natural = 20
    train: Annotated[
        Count | None, about("Training rows; null: 480, doubled until an epoch has 20 steps.")
    ] = None
    validation: Annotated[Count, about("Rows in the validation split.")] = 120
    test: Annotated[Count, about("Rows in the test split.")] = 120
    grey_share: Annotated[Share, about("Share of one-channel JPEG files.")] = 0.6
    max_bad_share: BadShare = 0.05


class Folder(Strict, tag_field="source", tag="folder", kw_only=True):
    """Your own images and captions."""

    path: Annotated[Text, about("Folder with the images and the tables.")]
    tables: Annotated[str, about("Glob of CSV, TSV, JSONL or Parquet files.")] = "*.csv"
    separator: Annotated[str | None, about("Of CSV and TSV; null: a comma, and a tab.")] = None
    image: Annotated[str, about("Path of a row's image; {column} is its value.")] = "{image}"
    columns: Annotated[dict[str, str], about("Our column, as caption or rank, to yours.")] = (
        msgspec.field(default_factory=lambda: {"caption": "caption"})
    )
    split: Annotated[str | None, about("Column that names the split; null: by the shares.")] = None
    validation_share: Share = 0.1
    test_share: Share = 0.1
    seed: Annotated[Natural, about("Seed of the split by contest and image.")] = 20
    limit_per_image: Annotated[Count | None, about("Most captions of an image; null: all.")] = None
    max_bad_share: BadShare = 0.05


class Hub(Strict, tag_field="source", tag="hub", kw_only=True):
    """A dataset of the hub, at one revision."""

    name: Repository
    config: str | None = None
    revision: Revision
    columns: Annotated[dict[str, str], about("Our column to theirs.")] = msgspec.field(
        default_factory=lambda: {"caption": "image_description"}
    )
    max_bad_share: BadShare = 0.05


Dataset = Generated | Folder | Hub


class WorkflowConfig(Strict, kw_only=True):
    """All keys of config/config.yaml."""

    studies: Annotated[list[Name], Meta(description="Files in config/studies.", min_length=1)]
    devices: Annotated[list[Name], Meta(description="Or `detected`.", min_length=1)]
    dataset: Annotated[Name, about("A name under `datasets`.")]
    datasets: Annotated[dict[Name, Dataset], about("Datasets by name.")]
    winoground: Annotated[Name | None, about("A name under `winoground_sets`; null: none.")] = None
    winoground_sets: Annotated[dict[Name, Examples], about("Copies of Winoground by name.")] = {}
    checkpoint: Annotated[Text | None, about("For all studies; null: as each study says.")] = None
    checkpoint_revision: str | None = None
    checkpoint_model: Annotated[
        Name | None, about("Model of the checkpoint, whose studies use it; null: all do.")
    ] = None
    repeats: Annotated[Repeats | None, about("For all studies; null: as each study says.")] = None
    protocol_at_most: Annotated[Most | None, about("null: as in each study.")] = None
    first_hour: Annotated[list[Text], about("Cells and `selftest`, in order.")] = []
    selftest_minutes: Annotated[float, Meta(gt=0, description="For all its parts.")] = 9.5
    selftest_parts: Annotated[list[Name] | None, about("In selftest.yaml; null: all.")] = None
    campaign: Annotated[Text | None, about("A new word measures all again.")] = None
    push_to_hub: Annotated[Text | None, about("Hub repository for models; token: HF_TOKEN.")] = None
    report_to: Annotated[list[Integration], about("Integrations of the Trainer.")] = msgspec.field(
        default_factory=lambda: ["tensorboard"]
    )
    on_driver: Annotated[
        list[Literal["short", "downloads"]], about("What runs on the login node.")
    ] = msgspec.field(default_factory=lambda: ["short"])


def dataset_for(config: WorkflowConfig, specs: Iterable[RunSpec]) -> str:
    """The name of the dataset that the cells of a study on a device share. If the configuration
    gives a generated one no number of rows, it has FEWEST_ROWS, doubled until an epoch is full in
    each cell; `generated-7680` has 7,680 rows. No other device or study counts, so that one more of
    them in the plan repeats no run."""
    entry = config.datasets[config.dataset]
    if not isinstance(entry, Generated) or entry.train is not None:
        return config.dataset
    needed = max((spec.step_samples * spec.full_epoch_steps for spec in specs), default=0)
    rows = FEWEST_ROWS
    while rows < needed:
        rows *= 2
    return config.dataset if rows == FEWEST_ROWS else f"{config.dataset}-{rows}"


def find_dataset(config: WorkflowConfig, name: str) -> Dataset:
    """The entry of `datasets` that `dataset_for` names, with its number of rows."""
    rows = str(FEWEST_ROWS)
    if name not in config.datasets:
        name, _, rows = name.rpartition("-")
    entry = config.datasets[name]
    if not isinstance(entry, Generated) or entry.train is not None:
        return entry
    return msgspec.structs.replace(entry, train=int(rows))


def check_config(
    origin: Origin, config: WorkflowConfig, devices: Mapping[str, Device], studies: Iterable[str]
) -> list[str]:
    """Check config.yaml against the device registry and the names of all studies."""
    problems = Problems(origin)
    problems.check_names("studies", config.studies, studies, "files in config/studies")
    names = [*devices, DETECTED]
    problems.check_names("devices", config.devices, names, "entries of config/devices.yaml")
    problems.check_unique(numbered("report_to[{}]", config.report_to))
    problems.check_known("dataset", config.dataset, config.datasets, "entries of datasets")
    for name, dataset in config.datasets.items():
        key = f"datasets.{name}"
        if isinstance(dataset, Folder | Hub):
            if "caption" not in dataset.columns:
                problems.add(f"{key}.columns.caption", "missing, but required")
            own = OWN_COLUMNS if isinstance(dataset, Folder) else OWN_COLUMNS[1:]
            for column in dataset.columns:
                if column in own:
                    problems.add(f"{key}.columns.{column}", "the suite makes this column itself")
        if isinstance(dataset, Folder):
            if dataset.validation_share + dataset.test_share >= 1:
                rest = "its sum with test_share must be below 1, or nothing is left to train on"
                problems.add(f"{key}.validation_share", rest)
            separator = dataset.separator
            if separator is not None and (len(separator) != 1 or separator in '"\r\n'):
                allowed = 'one character, not a quote or the end of a line; "\\t" is a tab'
                problems.add(f"{key}.separator", f"{separator!r} is not allowed; {allowed}")
            problems.check_path(f"{key}.path", dataset.path)
    for name, examples in config.winoground_sets.items():
        if isinstance(examples, LocalExamples):
            problems.check_path(f"winoground_sets.{name}.path", examples.path)
    problems.check_path("checkpoint", config.checkpoint)
    if config.winoground is not None:
        names = list(config.winoground_sets)
        problems.check_known("winoground", config.winoground, names, "entries of winoground_sets")
    if config.checkpoint_revision is not None and config.checkpoint is None:
        problems.add("checkpoint_revision", "it is given, but checkpoint is not")
    most = config.protocol_at_most
    if most and most.warmup_steps >= most.steps:
        text = f"{most.warmup_steps} is not allowed; it must be below steps, {most.steps}"
        problems.add("protocol_at_most.warmup_steps", text)
    if config.checkpoint_model is not None:
        names = list(plugins.names(BUILDERS))
        problems.check_known("checkpoint_model", config.checkpoint_model, names, "models")
    return problems
