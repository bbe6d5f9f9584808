"""Tables and phrases that several commands print."""

from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.table import Table

from feedrate.config.values import Level

FILE_WIDTH = 1000
"""Columns of output to a file or a pipe, so that no line is broken."""


def output() -> Console:
    """Stdout, as wide as the terminal."""
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=FILE_WIDTH)


def titled(title: str) -> Table:
    """An empty table without lines."""
    return Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False)


def varying(cells: Sequence[Mapping[str, Level]]) -> list[str]:
    """The factors whose levels differ between the cells; all factors if there is only one cell."""
    if len(cells) < 2:
        return list(cells[0]) if cells else []
    names = dict.fromkeys(name for cell in cells for name in cell)
    return [name for name in names if len({cell.get(name) for cell in cells}) > 1]


def counted(number: int, noun: str) -> str:
    """`1 run`, `2 runs`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"
