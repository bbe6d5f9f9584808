"""What a run's model scores before and after training: quality.json, one a run."""

import argparse
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from feedrate.config.errors import ConfigError
from feedrate.config.reading import convert_text
from feedrate.config.study import Factor
from feedrate.config.values import Level, Name, Strict
from feedrate.core.errors import ExpectedError, fail
from feedrate.results.columns import QUALITY, Column, with_factors
from feedrate.results.tables import level_kind, write_rows

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
    n: Annotated[int, Meta(description="What the figure is a mean over.")] = 0
    chance: Annotated[float | None, Meta(description="What chance gives; null: not known.")] = None
    seconds: Annotated[float, Meta(description="What scoring took.")] = 0.0
    note: str = ""


class Quality(Strict, kw_only=True):
    """quality.json."""

    schema: int = QUALITY_SCHEMA
    status: Annotated[
        Literal["ok", "failed", "no_model"],
        Meta(description="no_model: the run left nothing to score; only what failed is retried."),
    ]
    attempt: Annotated[int, Meta(description="Which try of scoring this is, from 1.")] = 1
    cause: Annotated[str, Meta(description="Why nothing was scored.")] = ""
    winoground: Annotated[
        str,
        Meta(description="generated, folder (NAME) or hub (facebook/winoground at 4d3…)."),
    ] = ""
    seconds: Annotated[float, Meta(description="The whole job.")] = 0.0
    scores: list[Score] = []


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


# `python -m feedrate.results.quality`: the quality.json of a study's runs into quality.csv.

Row = dict[str, Any]


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


def columns(settings: QualitySettings) -> list[Column]:
    """The columns of quality.csv."""
    kinds = {name: level_kind(factor.levels) for name, factor in settings.factors.items()}
    return with_factors(QUALITY, kinds)


def rows(settings: QualitySettings) -> list[Row]:
    """A row for each score, and one for a run that has none. Raises QualityError."""
    return [row for run in settings.runs for row in _of_run(settings.study, run)]


def _of_run(study: str, run: ScoredRun) -> Iterator[Row]:
    quality = read_quality(Path(run.file))
    common = {
        "study": study,
        **{name: getattr(run, name) for name in ("device", "cell", "repeat", "file")},
        **run.levels,
        "status": quality.status,
        "cause": quality.cause,
        "job_s": quality.seconds,
    }
    for score in _scores(quality):
        yield common | msgspec.to_builtins(score) if score else common


def _scores(quality: Quality) -> Iterable[Score | None]:
    return quality.scores or [None]


def main(arguments: list[str] | None = None) -> int:
    """0 where the file was written; 1, and one sentence, where it was not."""
    parser = argparse.ArgumentParser(
        prog="feedrate.results.quality", description=__doc__, fromfile_prefix_chars="@"
    )
    parser.add_argument("--settings", required=True, help="QualitySettings, a Python literal")
    parser.add_argument("--out", type=Path, required=True, help="quality.csv")
    options = parser.parse_args(arguments)
    try:
        settings = convert_text(options.settings, QualitySettings, "--settings")
        write_rows(options.out, columns(settings), rows(settings))
    except (ConfigError, QualityError, OSError) as error:
        return fail(parser.prog, error)
    return 0


if __name__ == "__main__":
    sys.exit(main())
