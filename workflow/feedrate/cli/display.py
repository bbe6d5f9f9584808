"""Tables on stdout."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from rich.console import Console, RenderableType
from rich.table import Table

from feedrate.config.values import BETWEEN_LEVELS, Level, level_text, parse_levels
from feedrate.results.files import Row

FILE_WIDTH = 1000
"""Columns of output to a file or a pipe, so that no line is broken."""


def output() -> Console:
    """Stdout, as wide as the terminal."""
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=FILE_WIDTH)


def table(
    title: str,
    columns: Sequence[str],
    rows: Iterable[Iterable[RenderableType]],
    *,
    left: Collection[str] = (),
    wrapped: Collection[str] = (),
    header: bool = True,
) -> Table:
    """A table without lines. The columns named in `left` and `wrapped` are justified left, all
    others right; only those in `wrapped` may take several lines."""
    made = Table(
        title=title,
        title_justify="left",
        title_style="bold",
        box=None,
        pad_edge=False,
        show_header=header,
    )
    for name in columns:
        if name in wrapped:
            made.add_column(name, overflow="fold")
        else:
            made.add_column(name, justify="left" if name in left else "right", no_wrap=True)
    for row in rows:
        made.add_row(*row)
    return made


def cells_table(
    title: str,
    rows: Sequence[Row],
    numbers: Sequence[str],
    word: str,
    values: Callable[[Row], Iterable[RenderableType]],
) -> Table:
    """A table with a row per cell: its device, the factors that vary, and its `values` for each of
    `numbers`, for the column `word`, and a remark."""
    cells = [parse_levels(row["cell"], BETWEEN_LEVELS) for row in rows]
    factors = varying(cells)
    columns = ("device", *factors, *numbers, word, "")
    found = (
        (row["device"], *(level_text(cell.get(name, "")) for name in factors), *values(row))
        for row, cell in zip(rows, cells, strict=True)
    )
    return table(title, columns, found, left=("device", word), wrapped=("",))


def varying(cells: Sequence[Mapping[str, Level]]) -> list[str]:
    """The factors whose levels differ between the cells; all factors if there is only one cell."""
    names = dict.fromkeys(name for cell in cells for name in cell)
    return [n for n in names if len(cells) == 1 or len({cell.get(n) for cell in cells}) > 1]
