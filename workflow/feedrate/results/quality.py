"""What a run's model scores before and after training: quality.json, and all of a study in a
table."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from feedrate.config.study import Factor
from feedrate.config.values import Level, Name, Strict
from feedrate.core.errors import ExpectedError
from feedrate.results.columns import QUALITY, for_studies
from feedrate.results.tables import Row, write_result

QUALITY_SCHEMA = 1


class QualityError(ExpectedError):
    """A file that is no quality.json; the message names it."""


class Score(Strict, kw_only=True):
    """One figure of a model."""

    moment: Literal["before", "after"]
    on: Annotated[str, Meta(description="validation, test, or winoground.")]
    metric: Annotated[
        str, Meta(description="contrastive_loss, image_to_text_recall_at_1, text_score, …")
    ]
    head: Annotated[str, Meta(description="What scored a pair: contrastive, matching.")] = ""
    value: Annotated[float | None, Meta(description="Null: not scored; `note` says why.")]
    low: Annotated[float | None, Meta(description="Bootstrap interval, 95%.")] = None
    high: float | None = None
    n: Annotated[int, Meta(description="Number of examples that the figure is a mean over.")] = 0
    chance: Annotated[float | None, Meta(description="By guessing; null: unknown.")] = None
    seconds: Annotated[float, Meta(description="Time that scoring took.")] = 0.0
    note: str = ""


class Quality(Strict, kw_only=True):
    """quality.json."""

    schema: int = QUALITY_SCHEMA
    status: Annotated[
        Literal["ok", "failed", "no_model"],
        Meta(description="no_model: the run left nothing to score; only what failed is retried."),
    ]
    attempt: Annotated[int, Meta(description="Which attempt at scoring this is, from 1.")] = 1
    cause: Annotated[str, Meta(description="Why nothing was scored.")] = ""
    winoground: Annotated[
        str,
        Meta(description="generated, folder (NAME) or hub (facebook/winoground at 4d3…)."),
    ] = ""
    seconds: Annotated[float, Meta(description="The whole job.")] = 0.0
    scores: list[Score] = []


class ScoredRun(Strict, kw_only=True):
    """A run whose model is scored."""

    file: str
    device: Name
    cell: str
    levels: dict[str, Level]
    repeat: int


class QualitySettings(Strict, kw_only=True):
    """`--settings`."""

    study: Name
    factors: dict[Name, Factor]
    runs: list[ScoredRun]


def read_quality(path: Path) -> Quality:
    """Read quality.json. Raises QualityError where it is none, or of another version."""
    try:
        found = msgspec.json.decode(path.read_bytes(), type=Quality)
    except FileNotFoundError:
        raise QualityError(f"{path}: no such file") from None
    except ValueError as error:
        raise QualityError(f"{path}: not of this version: {error}") from None
    if found.schema != QUALITY_SCHEMA:
        raise QualityError(
            f"{path}: schema {found.schema} is not allowed; this version of feedrate reads "
            f"{QUALITY_SCHEMA} (remove the file, and the model is scored again)"
        )
    return found


def quality_rows(settings: QualitySettings) -> Iterator[Row]:
    """A row for each score, and one for a run without scores. Raises QualityError."""
    for run in settings.runs:
        quality = read_quality(Path(run.file))
        common = {
            "study": settings.study,
            **{name: getattr(run, name) for name in ("device", "cell", "repeat", "file")},
            **run.levels,
            "status": quality.status,
            "cause": quality.cause,
            "job_s": quality.seconds,
        }
        yield from (common | score for score in msgspec.to_builtins(quality.scores) or [{}])


def collect_quality(settings: QualitySettings, out: Path) -> None:
    """Collect the scores of a study's models into one table; `out` is quality.csv."""
    columns = for_studies(QUALITY, {settings.study: settings})
    write_result(out, columns, quality_rows(settings))
