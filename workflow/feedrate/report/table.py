"""Tables as data: rows, and columns that say what of a row's item they show, and how."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from operator import itemgetter
from typing import Any, Literal, NamedTuple

from feedrate.config.values import BETWEEN_LEVELS, level_text, parse_levels
from feedrate.report import text
from feedrate.report.context import StudyContext
from feedrate.report.rows import CellOf, CellRow
from feedrate.results.schema import VALUES


class Field(NamedTuple):
    """A text in a table, with remarks below it; empty ones are left out."""

    text: str
    notes: Sequence[str] = ()
    of: Iterable[CellOf | None] = ()
    """The cells or runs to whose records the text leads."""
    word: bool = False
    """Whether the text stands in place of a number: failed, out of memory, /, a dash."""
    code: str = ""
    """An expression below the text."""
    file: str = ""
    """The file that the text leads to, from the project's root."""


Shown = str | Field


class Column(NamedTuple):
    """A column: `value` is an attribute of a row's item or a function of the item, `format` makes
    what is shown of it. An optional column is left out where no row has a value."""

    heading: str
    value: str | Callable[[Any], Any]
    format: Callable[[Any], Shown] = lambda shown: shown
    unit: str = ""
    optional: bool = False

    @property
    def head(self) -> str:
        """The heading with the unit."""
        return text.with_remark(self.heading, self.unit)

    def field(self, item: Any) -> Field:
        """What the column shows of an item."""
        value = getattr(item, self.value) if isinstance(self.value, str) else self.value(item)
        return field(self.format(value))


class Row(NamedTuple):
    """A row with the item that its columns show, or with one field across them."""

    heading: Shown
    item: Any = None
    wide: Shown | None = None
    use: bool = False
    """Whether it is highlighted."""


class Line(NamedTuple):
    """A row as it is shown: without fields, or with one that spans the columns if it is `wide`."""

    heading: Field
    fields: Sequence[Field] = ()
    wide: bool = False
    use: bool = False


class Table(NamedTuple):
    """A table; a text among the rows is the heading of those below it. Columns are numbers; with
    `texts` all are text, with `last-text` the last one is."""

    heading: str
    columns: Sequence[Column]
    rows: Sequence[Row | str]
    align: Literal["", "texts", "last-text"] = ""
    note: str = ""

    @property
    def heads(self) -> list[str]:
        """The headings of all columns."""
        return [self.heading, *(column.head for column in self._kept)]

    @property
    def lines(self) -> Iterator[Line]:
        """All rows; the heading of other rows has no fields."""
        kept = self._kept
        for row in self.rows:
            if isinstance(row, str):
                yield Line(Field(row))
            elif row.wide is not None:
                yield Line(field(row.heading), [field(row.wide)], wide=True)
            else:
                fields = [column.field(row.item) for column in kept]
                yield Line(field(row.heading), fields, use=row.use)

    @property
    def _kept(self) -> list[Column]:
        items = [row.item for row in self.rows if isinstance(row, Row) and row.wide is None]
        return [
            column
            for column in self.columns
            if not column.optional or any(column.field(item).text != text.DASH for item in items)
        ]


Content = Table | str
"""What a kind of table makes, alone or in a list: tables and sentences."""


def field(shown: Shown) -> Field:
    """A text as a field."""
    return Field(shown) if isinstance(shown, str) else shown


def listed(*heads: str) -> list[Column]:
    """The columns of rows whose items are lists of fields."""
    return [Column(head, itemgetter(place)) for place, head in enumerate(heads)]


# The table with a row for each cell

three = partial(text.number, digits=3)
NOISY = (
    "noisy: other work may have disturbed a run of the cell, or two of its runs may differ by more "
    "than the study allows. The finding Noise says which."
)
LONG = 300
"""Characters from which the names of unsupported cells are replaced by their levels."""


def cell_table(
    study: StudyContext,
    cells: Sequence[CellRow],
    columns: Sequence[Column],
    *,
    remarks: Mapping[str, str] | None = None,
    recommend: bool = False,
    align: Literal["", "last-text"] = "",
) -> Table:
    """A row for each cell that was tried; then, by cause, the cells that a device does not support.
    `remarks` follow the names of devices. `recommend` highlights recommended cells."""
    rows: list[Row | str] = []
    for device in study.measured:
        mine = [cell for cell in cells if cell.device == device]
        rows.append(study.label(device) + (remarks or {}).get(device, ""))
        rows += _cell_rows(mine, recommend)
        if not mine:
            rows.append(Row("all", wide=Field(text.STATUS_WORDS["absent"], word=True)))
    note = NOISY if any(cell.noisy for cell in cells) else ""
    return Table(study.factor_labels, columns, rows, align, note)


def _cell_rows(cells: Sequence[CellRow], recommend: bool) -> Iterator[Row]:
    for cell in cells:
        name = text.values_text(cell.levels)
        if cell.measured_as:
            same = text.values_text(parse_levels(cell.measured_as, BETWEEN_LEVELS))
            said = f"Same runs as {same}: the settings that differ have no effect."
            yield Row(Field(name, of=[cell]), wide=Field("", [said]))
        elif cell.samples_per_s is not None:
            mark = "noisy" if cell.noisy else ""
            yield Row(Field(name, [mark], [cell]), cell, use=recommend and cell.recommended)
        elif cell.status != "unsupported":
            why = Field(text.state(cell.status, cell.cause), [cell.cause], word=True)
            yield Row(Field(name, of=[cell]), wide=why)
    unsupported = (cell for cell in cells if cell.status == "unsupported")
    for cause, group in text.grouped(unsupported, lambda cell: cell.cause).items():
        why = Field(text.STATUS_WORDS["unsupported"], [f"{_names(group)}: {cause}"], word=True)
        yield Row(text.counted(len(group), "cell"), wide=why)


def _names(cells: Sequence[CellRow]) -> str:
    """The cells' names; of many cells, the levels that are combined in them."""
    names = "; ".join(text.values_text(cell.levels) for cell in cells)
    if len(names) <= LONG:
        return names
    levels = {name: dict.fromkeys(cell.levels[name] for cell in cells) for name in cells[0].levels}
    known = (f"{name} = {text.listed(map(level_text, found))}" for name, found in levels.items())
    return f"combinations of {'; '.join(known)}"


def loss_flag(cell: CellRow) -> str:
    """How far the loss is from the baseline's, if further than the effect of seeds; else empty."""
    if not cell.loss_departs or cell.loss_shift is None or cell.loss_seeds is None:
        return ""
    return (
        f"loss differs: {cell.loss_shift:+.3f} from the baseline's, "
        f"effect of seeds {cell.loss_seeds:.3f}"
    )


def _rate(cell: CellRow) -> Field:
    interval = text.interval(cell.ci_low, cell.ci_high)
    return Field(text.number(cell.samples_per_s), [interval, loss_flag(cell)])


def _speedup(cell: CellRow) -> Field:
    interval = text.ratio_interval(cell.speedup_ci_low, cell.speedup_ci_high)
    return Field(text.ratio(cell.speedup), [interval])


SPEED = [
    Column("Throughput", _rate, unit="samples/s"),
    Column("Speed-up over the baseline", _speedup),
]
MEMORY = Column("Peak memory", "peak_memory_gib", three, "GiB")
_EXTRA = {
    name: Column(value.extra, name, text.share if value.unit == "share" else three, optional=True)
    for name, value in VALUES.items()
    if value.extra
}
MFU = [_EXTRA.pop(name) for name in ("mfu", "mfu_real_tokens")]
COSTS = [
    *_EXTRA.values(),
    Column("USD per million samples", "usd_per_million_samples", three, optional=True),
]
"""The values that the schema gives a heading (`extra`), and what they cost."""
