"""The inputs of a page: rows of result files, and steps and scores of runs."""

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import msgspec

from feedrate.config.errors import ConfigError
from feedrate.config.study import Figure, Table
from feedrate.config.values import BETWEEN_LEVELS, Level, parse_levels, subset
from feedrate.core import paths
from feedrate.core.errors import LogError
from feedrate.jobs.events import Step, read_events
from feedrate.results import files
from feedrate.results.claims import NO_DATA
from feedrate.results.files import read_csv
from feedrate.results.record import Record, RecordError, Score, read_records
from feedrate.results.statistics import CONFIDENCE, assumed_noise, ratio_interval

# Rows of result files


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """A row of a result file; columns that the file lacks are None or empty."""

    study: str

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...  # the columns that `with_columns` adds


Key = tuple[str, str]
"""A device and a cell."""


class CellOf(Row, frozen=True, kw_only=True):
    """A row that belongs to a cell."""

    device: str
    cell: str

    @property
    def key(self) -> Key:
        """The device and the cell."""
        return self.device, self.cell

    @property
    def levels(self) -> dict[str, Level]:
        """The cell's levels, from its name."""
        return parse_levels(self.cell, BETWEEN_LEVELS)


T = TypeVar("T")
AnyRow = TypeVar("AnyRow", bound=Row)
_TYPES: dict[str, tuple[Any, Any]] = {
    "text": (str, ""),
    "integer": (int | None, None),
    "number": (float | None, None),
    "flag": (bool, False),
}


def with_columns(known: Sequence[files.Column]) -> Callable[[type[AnyRow]], type[AnyRow]]:
    """Add a typed field for each column that a class of rows does not declare itself."""

    def build(kind: type[AnyRow]) -> type[AnyRow]:
        own = {*kind.__struct_fields__, files.FACTORS}
        fields = [(c.name, *_TYPES[c.kind]) for c in known if c.name not in own]
        return msgspec.defstruct(  # type: ignore[return-value]
            kind.__name__, fields, bases=(kind,), module=__name__, frozen=True, kw_only=True
        )

    return build


@with_columns(files.CELLS)
class CellRow(CellOf, frozen=True, kw_only=True):
    """A row of cells.csv: the repeats of one cell together."""

    status: str
    task: str = "training"
    runs: int = 0
    ok_runs: int = 0

    @property
    def basis(self) -> str:
        """`, from single runs` where the rate has no interval; else empty."""
        return ", from single runs" * (self.ci_low is None)

    def rivals(self, cells: Iterable["CellRow"], share: float) -> list["CellRow"]:
        """The other cells that the runs do not show to be slower than this one, because the
        intervals of both rates overlap. Single runs are assumed to differ by up to `share`."""
        others = [cell for cell in cells if cell is not self]
        steady = [cell.block_noise for cell in others if not cell.disturbed]

        def overlaps(cell: CellRow) -> bool:
            if self.ci_low is not None and cell.ci_high is not None:
                return bool(cell.ci_high >= self.ci_low)
            noise = assumed_noise(share, (self.block_noise, cell.block_noise, *steady))
            rates = [cell.samples_per_s], [self.samples_per_s]
            return (ratio_interval(*rates, CONFIDENCE, noise, len(others)).high or 0.0) >= 1

        return [cell for cell in others if overlaps(cell)]


@with_columns(files.RUNS)
class RunRow(CellOf, frozen=True, kw_only=True):
    """A row of results.csv: one run."""

    status: str


def rates_of(cell: CellRow, runs: Iterable[RunRow], column: str) -> list[float]:
    """A rate of each ok run of a cell; the cell's own where no run has one."""
    good = (getattr(r, column) for r in runs if r.status == "ok" and r.key == cell.key)
    return [rate for rate in good if rate] or [getattr(cell, column)]


@with_columns(files.CLAIMS)
class ClaimRow(Row, frozen=True, kw_only=True):
    """A row of claims.csv."""

    claim: str
    statement: str
    of: str = "source"

    @property
    def compared(self) -> list[CellOf]:
        """The cells that a verdict rests on; none where there is no verdict."""
        named = [] if self.verdict == NO_DATA else filter(None, self.cells.split(";"))
        pairs = (one.partition("/") for one in named)
        return [CellOf(study=self.study, device=device, cell=cell) for device, _, cell in pairs]

    @property
    def heading(self) -> str:
        """The heading of the source's claims, or of our own questions."""
        return "Our own questions" if self.of == "ours" else "Claims of the source"


class ScoreRow(CellOf, frozen=True, kw_only=True):
    """One score of a run's model."""

    repeat: int
    score: Score


class Results(NamedTuple):
    """The rows of a study's result files, and its records by the folders of their runs."""

    cells: Sequence[CellRow]
    runs: Sequence[RunRow] = ()
    claims: Sequence[ClaimRow] = ()
    scores: Sequence[ScoreRow] = ()
    records: Mapping[str, Record] = {}


class Inputs:
    """The files that pages are made from."""

    def __init__(self, results: Path, data_report: str = "") -> None:
        """`results` is the folder of all results, `data_report` the file about the data."""
        self._results, self._data_report = results, data_report

    def page(self, study: str, item: Table | Figure) -> Path:
        """The file of a table or figure of a study."""
        if isinstance(item, Table):
            return self._results / study / f"tables/{item.name}.html"
        return self._results / study / f"figures/{item.name}.svg"

    def data_report(self, kind: type[T]) -> T:
        """The report about the data. Raises ConfigError for an invalid file."""
        try:
            return msgspec.json.decode(Path(self._data_report).read_bytes(), type=kind)
        except (OSError, ValueError, RecursionError) as error:
            raise ConfigError(f"{self._data_report}: {error}") from None

    def rows(self, name: str, kind: type[AnyRow], study: str) -> list[AnyRow]:
        """The rows of a result file of a study. Raises ConfigError for an invalid file."""
        path = self._results / study / name
        try:
            return [
                msgspec.convert({k: v for k, v in row.items() if v is not None}, kind)
                for row in read_csv(path, files.FILES[name])
            ]
        except (OSError, ValueError) as error:
            raise ConfigError(f"{path}: {error}") from None

    def cells(self, study: str) -> list[CellRow]:
        """The cells of a study."""
        return self.rows("cells.csv", CellRow, study)

    def tried(self, study: str) -> list[CellRow]:
        """The cells that their device supports: the others are in the tables of all cells. Of a
        device that supports none, all cells, because their causes are all there is to show."""
        cells = self.cells(study)
        able = {cell.device for cell in cells if cell.status != "unsupported"}
        return [c for c in cells if c.status != "unsupported" or c.device not in able]

    def runs(self, study: str) -> list[RunRow]:
        """The runs of a study."""
        return self.rows("results.csv", RunRow, study)

    def records(self, study: str) -> dict[str, Record]:
        """The records of a study by the folders of their runs; files that cannot be read are left
        out."""
        found: dict[str, Record] = {}
        for device in dict.fromkeys(run.device for run in self.runs(study)):
            with contextlib.suppress(OSError, RecordError):
                records = read_records(self._results / study, device)
                found |= {record.folder: record for record in records}
        return found

    def scores(self, study: str) -> list[ScoreRow]:
        """The scores in the records of a study's runs that were evaluated."""
        records = self.records(study)
        return [
            subset(ScoreRow, run, score=score)
            for run in self.runs(study)
            if run.evaluation_s is not None and not run.measured_as and run.folder in records
            for score in records[run.folder].scores
        ]

    def results(self, study: str) -> Results:
        """The rows of all files of a study."""
        return Results(
            self.cells(study),
            self.runs(study),
            self.rows("claims.csv", ClaimRow, study),
            self.scores(study),
            self.records(study),
        )


# Steps of runs


class Trace(NamedTuple):
    """The steps of one run, as rank 0 measured them."""

    run: RunRow
    steps: list[Step]


def traces(inputs: Inputs, study: str) -> list[Trace]:
    """The runs with steps, in the order of results.csv; broken events files are skipped."""
    found = []
    for run in (run for run in inputs.runs(study) if run.folder):
        with contextlib.suppress(OSError, LogError):
            if steps := read_events(Path(run.folder) / paths.EVENTS_NAME, 0).steps:
                found.append(Trace(run, steps))
    return found
