"""Tables as data: their place on a page, their rows, and columns that say what of a row is shown.

A file in `tables/` registers its tables in `TABLES: tuple[Table, ...]`.
"""

from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
from typing import Any, Literal, NamedTuple

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
    """Whether the text stands in place of a number: failed, out of memory."""
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
    optional: bool = False

    def field(self, row: Any) -> Field:
        """What the column shows of a row."""
        read = attrgetter(self.value) if isinstance(self.value, str) else self.value
        words = self.format(read(row))
        return Field(words) if isinstance(words, str) else words


class Wide(NamedTuple):
    """A row with one field across the columns."""

    heading: Field
    words: Field


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
    """Without rows the page leaves the table out. A cell without any rate is a wide row."""
    columns: Callable[[StudyResults], Sequence[Column]]
    note: str = ""
    align: Literal["", "texts", "last-text"] = ""

    def shown(self, study: StudyResults) -> Shown | None:
        """The table of a study; None where it has nothing to show."""
        rows, empty = self.rows(study), ("", text.DASH)
        if not rows:
            return None
        items = [row for row in rows if not isinstance(row, str | Wide)]
        columns = [
            column
            for column in self.columns(study)
            if not column.optional or any(column.field(row).text not in empty for row in items)
        ]
        lines = [_line(row, columns) for row in rows]
        heads = [column.head for column in columns]
        return Shown(self.name, self.title, heads, lines, self.note, self.align)


def all_tables() -> list[Table]:
    """The registered tables, in the order of the page."""
    files = (plugins.load(PACKAGE, name) for name in plugins.names(PACKAGE))
    return sorted((table for file in files for table in file.TABLES), key=lambda table: table.place)


def _line(row: Any, columns: Sequence[Column]) -> Line:
    if isinstance(row, str):
        return Line(Field(row))
    if isinstance(row, Wide):
        return Line(row.heading, [row.words], wide=True)
    heading, *fields = (column.field(row) for column in columns)
    if isinstance(row, CellRow) and row.samples_per_s is None and rate(row).text == text.DASH:
        why = Field(text.state(row.status, row.cause), [row.cause], word=True)
        return Line(heading, [why], wide=True)
    return Line(heading, fields, use=getattr(row, "use", False))


# What several tables have


def by_device(study: StudyResults, rows: Iterable[Any]) -> list[Any]:
    """Rows that have a `device`, below the names of their devices if there are several."""
    groups = text.grouped(rows, lambda row: row.device)
    if len(groups) < 2:
        return [row for group in groups.values() for row in group]
    return [row for device, group in groups.items() for row in (study.label(device), *group)]


def setting(study: StudyResults) -> Column:
    """The heading of a cell's row: its levels, which lead to its records."""
    head = ", ".join(map(study.factor_label, study.study.factors))
    return Column(head, lambda cell: Field(text.values_text(cell.levels), of=[cell]))


def rate(cell: CellRow) -> Field:
    """A cell's rate with its interval; without one that counts, the provisional one."""
    if cell.samples_per_s is None and cell.provisional_samples_per_s is not None:
        words = text.number(cell.provisional_samples_per_s)
        note = "provisional: other programs used the cores"
        return Field(words, [note], [cell], provisional=True)
    return Field(text.with_interval(cell.samples_per_s, cell.ci_low, cell.ci_high), of=[cell])


def change(cell: CellRow) -> str:
    """A cell's rate against its baseline's, with the interval."""
    return text.change(cell.speedup, cell.speedup_ci_low, cell.speedup_ci_high)


RATE = Column("Samples/s", rate)
