"""Tables as data: their place on a page, their rows, and columns that say what of a row is shown.

A file in `tables/` registers its tables in `TABLES: tuple[Table, ...]`.
"""

from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
from typing import Any, Literal, NamedTuple

from feedrate.core import plugins
from feedrate.report import text
from feedrate.report.rows import CellOf, CellRow, varying_factors
from feedrate.report.study import Part, StudyResults

PACKAGE = "feedrate.report.tables"


class Field(NamedTuple):
    """A text in a table, with remarks below it; empty ones are left out."""

    text: str
    notes: Sequence[str] = ()
    of: Iterable[CellOf | None] = ()  # the cells or runs to whose records the text leads
    word: bool = False  # it stands in place of a number: failed, out of memory
    provisional: bool = False  # a number that counts for nothing, shown in grey
    file: str = ""  # the file that the text leads to, from the project's root


class Column(NamedTuple):
    """A column: `value` is an attribute of a row or a function of the row, `format` makes what is
    shown of it. An optional column is left out where no row has a value."""

    head: str
    value: str | Callable[[Any], Any]
    format: Callable[[Any], str | Field] = lambda words: words
    optional: bool = False

    def field(self, row: Any) -> Field:
        """What the column shows of a row."""
        read = attrgetter(self.value) if isinstance(self.value, str) else self.value
        words = self.format(read(row))
        return Field(words) if isinstance(words, str) else words


class Line(NamedTuple):
    """A row as it is shown: the heading of other rows has no fields, a wide one has one field."""

    heading: Field
    fields: Sequence[Field] = ()
    wide: bool = False
    use: bool = False  # it is highlighted


class Shown(NamedTuple):
    """A table of a study, ready to be rendered."""

    name: str
    title: str
    heads: list[str]
    lines: list[Line]
    note: str
    align: str


class Table(NamedTuple):
    """A table. `rows` gives the things that the columns show, headings of those that follow, and
    wide lines; without any, the page leaves the table out. A cell without a rate is a wide line.
    The first column heads a row. Columns are numbers; `align` says which are texts."""

    name: str
    title: str
    part: Part
    place: int
    rows: Callable[[StudyResults], Sequence[Any]]
    columns: Callable[[StudyResults], Sequence[Column]]
    note: str | Callable[[StudyResults], str] = ""
    align: Literal["", "texts", "last-text"] = ""

    def shown(self, study: StudyResults) -> Shown | None:
        """The table of a study; None where it has nothing to show."""
        rows = self.rows(study)
        if not rows:
            return None
        items = [row for row in rows if not isinstance(row, str | Line)]
        columns = [
            column
            for column in self.columns(study)
            if not column.optional
            or any(column.field(item).text not in ("", text.DASH) for item in items)
        ]
        heads = [column.head for column in columns]
        lines = [_line(study, row, columns) for row in rows]
        note = self.note if isinstance(self.note, str) else self.note(study)
        return Shown(self.name, self.title, heads, lines, note, self.align)


def all_tables() -> list[Table]:
    """The registered tables, in the order of the page."""
    files = (plugins.load(PACKAGE, name) for name in plugins.names(PACKAGE))
    return sorted((table for file in files for table in file.TABLES), key=lambda table: table.place)


def _line(study: StudyResults, row: Any, columns: Sequence[Column]) -> Line:
    if isinstance(row, Line):
        return row
    if isinstance(row, str):
        return Line(Field(row))
    heading, *fields = (column.field(row) for column in columns)
    if isinstance(row, CellRow) and rate(row).text == text.DASH:
        return wide(heading, text.state(row.status, row.cause), row.cause)
    return Line(heading, fields, use=isinstance(row, CellRow) and study.is_choice(row))


# What several tables have


def wide(heading: Field | str, words: str, *notes: str) -> Line:
    """A row with one field across the columns."""
    return Line(
        Field(heading) if isinstance(heading, str) else heading, [Field(words, notes)], True
    )


def by_device(study: StudyResults, rows: Iterable[Any]) -> list[Any]:
    """Rows that have a `device`, below the names of their devices if there are several."""
    groups = text.grouped(rows, lambda row: row.device)
    if len(study.devices) == 1:
        return [row for group in groups.values() for row in group]
    return [row for device, group in groups.items() for row in (study.label(device), *group)]


def setting(study: StudyResults, cells: Sequence[CellRow]) -> Column:
    """The heading of a cell's row: the levels in which `cells` differ, which lead to its records,
    and a mark on the one to use."""
    names = varying_factors(cells) or [study.along]

    def heading(cell: CellRow) -> Field:
        words = text.values_text({name: cell.levels[name] for name in names})
        return Field(words, ["use this"] if study.is_choice(cell) else [], [cell])

    return Column(", ".join(map(study.factor_label, names)), heading)


def rate(cell: CellRow) -> Field:
    """A cell's rate with its interval; without one that counts, the provisional one."""
    if cell.samples_per_s is None and cell.provisional_samples_per_s is not None:
        words = text.number(cell.provisional_samples_per_s)
        return Field(words, ["provisional"], [cell], provisional=True)
    return Field(text.with_interval(cell.samples_per_s, cell.ci_low, cell.ci_high), of=[cell])


def gain(study: StudyResults) -> Column:
    """A cell against its baseline, with the interval. The head says whether the machine's drift,
    which rates contain, is removed; where this differs by device, the page says it elsewhere."""
    by_share = [study.by_share(device) for device in study.devices]
    how = ", drift removed" if all(by_share) else "" if any(by_share) else " in samples/s"

    def change(cell: CellRow) -> str:
        ratio = cell.speedup, cell.speedup_ci_low, cell.speedup_ci_high
        return "the baseline" if ratio == (1, 1, 1) else text.change(*ratio)

    return Column(f"Gain{how}", change, optional=True)


RATE = Column("Samples/s", rate)
