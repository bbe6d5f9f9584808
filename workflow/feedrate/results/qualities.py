"""`python -m feedrate.results.qualities`: the quality.json of a study's runs into quality.csv."""

import argparse
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from feedrate.config.base import Level, Name, Strict
from feedrate.config.load import ConfigError, convert_text
from feedrate.config.study import Factor
from feedrate.endings import fail
from feedrate.results.columns import QUALITY, Column, with_factors
from feedrate.results.quality import Quality, QualityError, Score, read_quality
from feedrate.results.tables import level_kind, write_rows

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
        prog="feedrate.results.qualities", description=__doc__, fromfile_prefix_chars="@"
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
