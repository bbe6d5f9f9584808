"""Tables as HTML. Every text is escaped once, when it becomes markup."""

import html
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from urllib.parse import quote

from feedrate.config.values import BETWEEN_LEVELS, level_text, parse_levels
from feedrate.report import text
from feedrate.report.context import StudyContext
from feedrate.report.rows import CellOf, CellRow
from feedrate.results.schema import VALUES, Value

OVERVIEW = "../../overview.html"
"""The overview, from the place of a table's page."""
SAFE = "/=~,"
"""Signs in an anchor that an address can hold."""


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


def el(name: str, *content: str | None, **attributes: str) -> Markup:
    """An element; plain texts in it are escaped, and `class_` sets its class."""
    return Markup(f"{void(name, **attributes)}{join(*content)}</{name}>")


def void(name: str, **attributes: str) -> Markup:
    """An element without content, such as an image."""
    opening = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{html.escape(value)}"'
        for key, value in attributes.items()
        if value
    )
    return Markup(f"<{name}{opening}>")


def join(*content: str | None) -> Markup:
    """Pieces of text and HTML as one piece of HTML."""
    return Markup("".join(p if isinstance(p, Markup) else html.escape(p) for p in content if p))


def small(remark: str) -> Markup:
    """A remark on a line of its own, such as an interval below its number."""
    return el("small", remark) if remark else Markup()


def noted(content: str, *remarks: str) -> Markup:
    """A number or text with remarks below it; empty ones are left out."""
    return join(content, *map(small, remarks))


def word(reason: str) -> Markup:
    """The text in place of a number: failed, out of memory, /, a dash."""
    return el("span", reason, class_="word" if reason[:1].isalpha() else "")


def link(name: str, address: str) -> Markup:
    """A link to a web page; only the name where the address is not of the web."""
    if not address.startswith(("https://", "http://")):
        return join(name)
    return el("a", name, href=address, rel="noreferrer")


def anchor(study: str, device: str, cell: str, repeat: int | None = None) -> str:
    """The id of a run, or of a cell, in the overview's table of runs."""
    return "/".join([study, device, cell, *([f"rep{repeat}"] if repeat else [])])


def anchor_of(cell: CellOf) -> str:
    """The anchor of a cell's row, or of a run's."""
    runs = getattr(cell, "measured_as", "") or cell.cell
    return anchor(cell.study, cell.device, runs, getattr(cell, "repeat", None))


def record_link(label: str, *cells: CellOf | None, at: str = OVERVIEW) -> Markup:
    """A number or name as a link to the records of its cells or runs; without any there is no link.
    `at` is the page with the records; empty: the same page."""
    known = (quote(anchor_of(cell), safe=SAFE) for cell in cells if cell)
    first, *more = dict.fromkeys(known) or [""]
    if not first:
        return join(label)
    return el("a", label, href=f"{at}#{first}", data_more=" ".join(more), class_="record")


def row(
    heading: str, *cells: str | None, class_: str = "", of: Iterable[CellOf | None] = ()
) -> Markup:
    """A row of a table. The page's script opens the records of `of` from any of its fields."""
    head = el("th", record_link(heading, *of), scope="row")
    return el("tr", head, *(el("td", cell) for cell in cells), class_=class_)


def wide_row(heading: str, content: str, columns: int, of: Iterable[CellOf | None] = ()) -> Markup:
    """A row whose second cell spans the rest of its `columns`; for `of` see `row`."""
    field = el("td", content, colspan=str(columns - 1), class_="text")
    return el("tr", el("th", record_link(heading, *of), scope="row"), field)


def group_row(heading: str, columns: int) -> Markup:
    """A heading of the rows below it."""
    return el("tr", el("th", heading, colspan=str(columns), scope="rowgroup"), class_="group")


def table(head: Sequence[str], rows: Iterable[Markup], class_: str = "") -> Markup:
    """A table in a box that scrolls sideways where the page is too narrow. Columns are numbers;
    with class `texts` all are text, with `last-text` the last one is."""
    heading = el("thead", el("tr", *(el("th", cell, scope="col") for cell in head)))
    content = el("table", heading, el("tbody", *rows), class_=class_)
    return el("div", content, class_="scroll", tabindex="0")


# The table with a row for each cell, which several kinds of table share

Field = Callable[[CellRow], str]
"""The content of a column for one cell."""


def cell_table(
    study: StudyContext,
    cells: Sequence[CellRow],
    columns: Mapping[str, Field],
    *,
    optional: Collection[str] = (),
    headings: Mapping[str, str] | None = None,
    recommend: bool = False,
    class_: str = "",
) -> Markup:
    """A row for each cell that was tried; then, by cause, the cells that a device does not support.
    A column in `optional` is left out where no cell has a value. `headings` follow the names of
    devices. `recommend` highlights recommended cells. A note explains the mark of noisy cells."""
    columns = {
        head: field
        for head, field in columns.items()
        if head not in optional or any(field(cell) != text.DASH for cell in cells)
    }
    width = 1 + len(columns)
    rows: list[Markup] = []
    for device in study.measured:
        mine = [cell for cell in cells if cell.device == device]
        rows.append(group_row(study.label(device) + (headings or {}).get(device, ""), width))
        rows += _cell_rows(mine, columns, recommend)
        if not mine:
            rows.append(wide_row("all", word(text.STATUS_WORDS["absent"]), width))
    note = el("p", NOISY) if any(cell.noisy for cell in cells) else ""
    return join(table([study.factor_labels, *columns], rows, class_), note)


LONG = 300
"""Characters from which the names of unsupported cells are replaced by their levels."""
NOISY = (
    "noisy: other work may have disturbed a run of the cell, or two of its runs may differ by more "
    "than the study allows. The finding Noise says which."
)


def _cell_rows(
    cells: Sequence[CellRow], columns: Mapping[str, Field], recommend: bool
) -> Iterator[Markup]:
    width = 1 + len(columns)
    for cell in cells:
        name = text.values_text(cell.levels)
        if cell.measured_as:
            same = text.values_text(parse_levels(cell.measured_as, BETWEEN_LEVELS))
            why = small(f"Same runs as {same}: the settings that differ have no effect.")
            yield wide_row(name, why, width, of=[cell])
        elif cell.samples_per_s is not None:
            use = "use" * (recommend and cell.recommended)
            marked = noted(name, "noisy" * cell.noisy)
            yield row(marked, *(field(cell) for field in columns.values()), class_=use, of=[cell])
        elif cell.status != "unsupported":
            reason = noted(word(text.state(cell.status, cell.cause)), cell.cause)
            yield wide_row(name, reason, width, of=[cell])
    unsupported = (cell for cell in cells if cell.status == "unsupported")
    for cause, group in text.grouped(unsupported, lambda cell: cell.cause).items():
        reason = noted(word(text.STATUS_WORDS["unsupported"]), f"{_names(group)}: {cause}")
        yield wide_row(text.counted(len(group), "cell"), reason, width)


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


SPEED: dict[str, Field] = {
    "Throughput (samples/s)": lambda cell: noted(
        text.number(cell.samples_per_s), text.interval(cell.ci_low, cell.ci_high), loss_flag(cell)
    ),
    "Speed-up over the baseline": lambda cell: noted(
        text.ratio(cell.speedup), text.ratio_interval(cell.speedup_ci_low, cell.speedup_ci_high)
    ),
}
MEMORY: dict[str, Field] = {
    "Peak memory (GiB)": lambda cell: text.number(cell.peak_memory_gib, 3),
}


def _measured(value: Value) -> Field:
    """How a table of cells shows a value that the schema gives a heading (`extra`)."""
    if value.unit == "share":
        return lambda cell: text.share(getattr(cell, value.column))
    return lambda cell: text.number(getattr(cell, value.column), 3)


EXTRA = {value.extra: _measured(value) for value in VALUES.values() if value.extra}
_MFU = (VALUES[name].extra for name in ("mfu", "mfu_real_tokens"))
MFU: dict[str, Field] = {head: EXTRA.pop(head) for head in _MFU}
COSTS: dict[str, Field] = {
    **EXTRA,
    "USD per million samples": lambda cell: text.number(cell.usd_per_million_samples, 3),
}
