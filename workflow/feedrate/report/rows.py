"""Result files as typed rows, and the steps of single runs."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import msgspec

from feedrate.config.errors import ConfigError
from feedrate.config.values import BETWEEN_LEVELS, Level, parse_levels
from feedrate.core import paths
from feedrate.core.errors import LogError
from feedrate.jobs.events import Step, read_events
from feedrate.results import columns
from feedrate.results.tables import read_csv


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """A row of a result file; columns that the file lacks are None or empty."""

    study: str

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...  # the columns that `with_columns` adds


class CellOf(Row, frozen=True, kw_only=True):
    """A row that belongs to a cell."""

    device: str
    cell: str

    @property
    def levels(self) -> dict[str, Level]:
        """The cell's levels, from its name."""
        return parse_levels(self.cell, BETWEEN_LEVELS)


AnyRow = TypeVar("AnyRow", bound=Row)
_TYPES: dict[str, tuple[Any, Any]] = {
    "text": (str, ""),
    "integer": (int | None, None),
    "number": (float | None, None),
    "flag": (bool, False),
}


def with_columns(known: Sequence[columns.Column]) -> Callable[[type[AnyRow]], type[AnyRow]]:
    """Add a typed field for each column that a class of rows does not declare itself."""

    def build(kind: type[AnyRow]) -> type[AnyRow]:
        own = {*kind.__struct_fields__, columns.FACTORS}
        fields = [(c.name, *_TYPES[c.kind]) for c in known if c.name not in own]
        return msgspec.defstruct(  # type: ignore[return-value]
            kind.__name__, fields, bases=(kind,), module=__name__, frozen=True, kw_only=True
        )

    return build


@with_columns(columns.CELLS)
class CellRow(CellOf, frozen=True, kw_only=True):
    """A row of cells.csv: the repeats of one cell together."""

    status: str
    task: str = "training"
    runs: int = 0
    ok_runs: int = 0


@with_columns(columns.RUNS)
class RunRow(CellOf, frozen=True, kw_only=True):
    """A row of results.csv: one run."""

    status: str


@with_columns(columns.CLAIMS)
class ClaimRow(Row, frozen=True, kw_only=True):
    """A row of claims.csv."""

    claim: str
    statement: str


@with_columns(columns.FIT)
class FitRow(CellOf, frozen=True, kw_only=True):
    """A row of fit.csv: a cell and the loader model's prediction for it."""

    origin: str
    series: str = ""
    """What distinguishes the fits of a device; cells of one series share the constants."""

    @property
    def fit(self) -> tuple[str, str, str]:
        """The key that the cells of one fit share."""
        return self.origin, self.device, self.series

    def called(self, label: str) -> str:
        """The fit's display name, from its device's `label`."""
        return f"{label} ({self.series})" if self.series else label


@with_columns(columns.QUALITY)
class QualityRow(CellOf, frozen=True, kw_only=True):
    """A row of quality.csv: one figure of a run's model, before or after training."""

    repeat: int
    status: str
    n: int = 0


_COLUMNS = {
    "cells.csv": columns.CELLS,
    "results.csv": columns.RUNS,
    "claims.csv": columns.CLAIMS,
    "fit.csv": columns.FIT,
    "quality.csv": columns.QUALITY,
}


class Inputs:
    """The files that a page is made from, found by the ends of their paths."""

    def __init__(self, files: Iterable[Path | str]) -> None:
        self._files = [Path(file) for file in files]

    def find(self, end: str) -> Path | None:
        """The first file whose path ends in `end`, such as `cells.csv` or `tables/cells.html`."""
        parts = Path(end).parts
        return next((file for file in self._files if file.parts[-len(parts) :] == parts), None)

    def path(self, end: str) -> Path:
        """The same. Raises ConfigError where it was not given."""
        if found := self.find(end):
            return found
        given = ", ".join(file.name for file in self.with_suffix(Path(end).suffix)) or "none"
        raise ConfigError(f"{end} is needed, but is not among the input files ({given})")

    def with_suffix(self, suffix: str) -> list[Path]:
        """The files with this suffix."""
        return [file for file in self._files if file.suffix == suffix]

    def rows(
        self, name: str, kind: type[AnyRow], study: str, file: Path | None = None
    ) -> list[AnyRow]:
        """The rows of one study, from the file with this name or from `file`. Raises ConfigError
        for an invalid file."""
        path = file or self.path(name)
        try:
            return [
                msgspec.convert({k: v for k, v in row.items() if v is not None}, kind)
                for row in read_csv(path, _COLUMNS[name])
                if row.get("study") == study
            ]
        except (OSError, ValueError, msgspec.ValidationError) as error:
            raise ConfigError(f"{path}: {error}") from None

    def cells(self, study: str) -> list[CellRow]:
        """The cells of a study."""
        return self.rows("cells.csv", CellRow, study)

    def runs(self, study: str) -> list[RunRow]:
        """The runs of a study."""
        return self.rows("results.csv", RunRow, study)

    def scores(self, study: str) -> list[QualityRow]:
        """The scores of the models of a study, which may be one of several files."""
        own = self.find(f"{study}/quality.csv")
        return self.rows("quality.csv", QualityRow, study, own)


class Trace(NamedTuple):
    """The steps of one run, as rank 0 measured them."""

    run: RunRow
    steps: list[Step]


def traces(inputs: Inputs, study: str) -> list[Trace]:
    """The runs with steps, in the order of results.csv; broken events files are skipped."""
    found = []
    for run in inputs.runs(study):
        try:
            events = Path(run.record).with_name(paths.EVENTS_NAME) if run.record else None
            steps = read_events(events, 0).steps if events else []
        except (OSError, LogError):
            continue
        if steps:
            found.append(Trace(run, steps))
    return found
