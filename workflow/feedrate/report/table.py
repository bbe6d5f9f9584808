"""Tables as data: their place on a page, their rows, and columns that say what of a row is shown.

A file in `tables/` registers its tables in `TABLES: tuple[Table, ...]`.
"""

from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
from typing import Any, Literal, NamedTuple

from feedrate.config.values import level_text
from feedrate.core import plugins
from feedrate.report import text
from feedrate.report.study import CellOf, CellRow, Part, StudyResults

PACKAGE = "feedrate.report.tables"


class Field(NamedTuple):
    """A text in a table, with remarks below it; empty ones are left out."""

    text: str
    notes: Sequence[str] = ()
    of: Iterable[CellOf | None] = ()
    """The cells or runs to whose records the text leads."""
    word: bool = False
    """Whether the text stands in place of a number: failed, out of memory, a dash."""
    code: str = ""
    """An expression below the text."""
    file: str = ""
    """The file that the text leads to, from the project's root."""
    provisional: bool = False
    """Whether it is a number that counts for nothing, shown in grey."""


Words = str | Field


class Column(NamedTuple):
    """A column: `value` is an attribute of a row or a function of the row, `format` makes what is
    shown of it. An optional column is left out where no row has a value."""

    head: str
    value: str | Callable[[Any], Any]
    format: Callable[[Any], Words] = lambda words: words
    unit: str = ""
    optional: bool = False

    def field(self, row: Any) -> Field:
        """What the column shows of a row."""
        read = attrgetter(self.value) if isinstance(self.value, str) else self.value
        return _field(self.format(read(row)))


class Wide(NamedTuple):
    """A row with one field across the columns."""

    heading: Words
    words: Words


class Line(NamedTuple):
    """A row as it is shown: the heading of other rows has no fields, and a wide one has one."""

    heading: Field
    fields: Sequence[Field] = ()
    wide: bool = False
    use: bool = False
    """Whether it is highlighted."""


class Shown(NamedTuple):
    """A table of a study, ready to be rendered."""

    name: str
    title: str
    heads: list[str]
    lines: list[Line]
    note: str
    align: str


class Table(NamedTuple):
    """A table. The first column is the heading of a row; a text among the rows is the heading of
    those below it. Columns are numbers; with `texts` all are text, with `last-text` the last."""

    name: str
    title: str
    part: Part
    place: int
    rows: Callable[[StudyResults], Sequence[Any]]
    """Without rows the page leaves the table out."""
    columns: Sequence[Column] | Callable[[StudyResults], Sequence[Column]]
    note: str = ""
    align: Literal["", "texts", "last-text"] = ""

    def shown(self, study: StudyResults) -> Shown | None:
        """The table of a study; None where it has nothing to show."""
        rows = self.rows(study)
        if not rows:
            return None
        items = [row for row in rows if not isinstance(row, str | Wide)]
        columns = self.columns(study) if callable(self.columns) else self.columns
        empty = ("", text.DASH)
        kept = [
            c for c in columns if not c.optional or any(c.field(i).text not in empty for i in items)
        ]
        heads = [f"{c.head} ({c.unit})" if c.unit else c.head for c in kept]
        lines = [_line(row, kept) for row in rows]
        return Shown(self.name, self.title, heads, lines, self.note, self.align)


def all_tables() -> list[Table]:
    """The registered tables, in the order of the page."""
    files = (plugins.load(PACKAGE, name) for name in plugins.names(PACKAGE))
    return sorted((table for file in files for table in file.TABLES), key=lambda table: table.place)


def _line(row: Any, columns: Sequence[Column]) -> Line:
    if isinstance(row, str):
        return Line(Field(row))
    if isinstance(row, Wide):
        return Line(_field(row.heading), [_field(row.words)], wide=True)
    heading, *fields = (column.field(row) for column in columns)
    return Line(heading, fields, use=getattr(row, "use", False))


def _field(words: Words) -> Field:
    return Field(words) if isinstance(words, str) else words


# Rows and columns that several tables have


def by_device(study: StudyResults, rows_of: Callable[[str], Sequence[Any]]) -> list[Any]:
    """The rows of each device; of several, below their names."""
    groups = {device: rows for device in study.devices if (rows := rows_of(device))}
    if len(study.devices) == 1:
        return [*groups.get(study.devices[0], ())]
    return [row for device, rows in groups.items() for row in (study.label(device), *rows)]


def cell_rows(device: str, cells: Sequence[CellRow]) -> list[Any]:
    """The cells of a device; those without a rate are in one row for each status and cause."""
    mine = [cell for cell in cells if cell.device == device]
    rows: list[Any] = [cell for cell in mine if cell.samples_per_s is not None]
    others = (cell for cell in mine if cell.samples_per_s is None)
    for (status, cause), group in text.grouped(others, lambda c: (c.status, c.cause)).items():
        name = text.values_text(group[0].levels)
        if len(group) > 1:
            name = text.counted(len(group), "setting")
            cause = f"{levels_of(group)}. {cause}"
        rows.append(
            Wide(Field(name, of=group), Field(text.state(status, cause), [cause], word=True))
        )
    return rows


def levels_of(cells: Sequence[CellRow]) -> str:
    """The levels of several cells: `workers = 0, 1 and 2, decode = host`."""
    levels = {
        name: dict.fromkeys(level_text(c.levels[name]) for c in cells) for name in cells[0].levels
    }
    return ", ".join(f"{name} = {text.listed(values)}" for name, values in levels.items())


def setting(study: StudyResults) -> Column:
    """The heading of a cell's row: its levels, which lead to its records."""
    head = ", ".join(map(study.factor_label, study.study.factors))
    return Column(head, lambda cell: Field(text.values_text(cell.levels), of=[cell]))


def rate(cell: CellRow) -> Field:
    """A cell's rate with its interval."""
    return Field(text.with_interval(cell.samples_per_s, cell.ci_low, cell.ci_high), of=[cell])


def change(cell: CellRow) -> str:
    """A cell's rate against its baseline's, with the interval; a dash without one."""
    return text.change(cell.speedup, cell.speedup_ci_low, cell.speedup_ci_high)


RATE = Column("Samples/s", rate)
CHANGE = Column("Against the baseline", change)
