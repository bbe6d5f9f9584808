"""Rows of result files, with a typed field for each column."""

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import msgspec

from feedrate.config.values import BETWEEN_LEVELS, Level, level_text, parse_levels
from feedrate.results import files
from feedrate.results.claims import NO_DATA, REFUTED
from feedrate.results.statistics import Estimate


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
    def share(self) -> Estimate | None:
        """The share of the rate of the model alone that training reaches in the same rounds, with
        its interval; None where the model alone was not measured. With one rank its inverse, minus
        1, is the gain of a faster loader; several also exchange gradients."""
        ratio, low, high = self.model_ratio, self.model_ratio_low, self.model_ratio_high
        if not ratio:
            return None
        training = 1 - (self.epoch_start_share or 0.0)  # no epoch starts in the rounds
        return Estimate(training / ratio, high and training / high, low and training / low)


@with_columns(files.RUNS)
class RunRow(CellOf, frozen=True, kw_only=True):
    """A row of results.csv: one run."""

    status: str


@with_columns(files.ANSWERS)
class AnswerRow(CellOf, frozen=True, kw_only=True):
    """A row of answers.csv: the cell to use on a device, with its bounds."""


@with_columns(files.CLAIMS)
class ClaimRow(Row, frozen=True, kw_only=True):
    """A row of claims.csv."""

    claim: str
    statement: str
    of: str = "source"

    @property
    def outcome(self) -> str:
        """The verdict in words. Advice and our questions are not about one device."""
        here = self.verdict == REFUTED and self.of != "source"
        return "not on this device" if here else self.verdict

    @property
    def compared(self) -> list[CellOf]:
        """The cells that a verdict rests on; none where there is no verdict."""
        named = [] if self.verdict == NO_DATA else filter(None, self.cells.split(";"))
        pairs = (cell.partition("/") for cell in named)
        return [CellOf(study=self.study, device=device, cell=cell) for device, _, cell in pairs]


class Line(NamedTuple):
    """The tried cells of a device that differ in one factor only, in the order of its levels;
    `others` are the levels of the other factors."""

    device: str
    others: dict[str, Level]
    cells: list[CellRow]

    @property
    def ok(self) -> list[CellRow]:
        """The cells that have a rate."""
        return [cell for cell in self.cells if cell.samples_per_s is not None]

    @property
    def largest(self) -> CellRow | None:
        """The last cell that has a rate."""
        return self.ok[-1] if self.ok else None

    @property
    def fastest(self) -> CellRow | None:
        """The cell with the highest rate."""
        return max(self.ok, key=lambda cell: cell.samples_per_s or 0.0, default=None)

    @property
    def too_large(self) -> CellRow | None:
        """The first cell that ran out of memory."""
        return next((cell for cell in self.cells if cell.status == "out_of_memory"), None)


def varying_factors(cells: Sequence[CellOf]) -> list[str]:
    """The factors in which cells differ."""
    levels = [cell.levels for cell in cells]
    names = list(dict.fromkeys(itertools.chain(*levels)))
    return [name for name in names if len({level_text(cell.get(name, "")) for cell in levels}) > 1]


def without(levels: Mapping[str, Level], *factors: str) -> dict[str, Level]:
    """Levels without those of some factors."""
    return {name: level for name, level in levels.items() if name not in factors}


def level_key(levels: Mapping[str, Level]) -> str:
    """A cell's levels as a key that ignores the order of the factors."""
    return ",".join(f"{name}={level_text(levels[name])}" for name in sorted(levels))
