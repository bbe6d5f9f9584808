"""Tables on stdout: one look for all of them."""

from rich.console import Console
from rich.table import Table

FILE_WIDTH = 1000
"""Columns where the output is no terminal: as many as a table needs."""


def output() -> Console:
    """Stdout, as wide as the terminal; in a file or a pipe no line is broken."""
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=FILE_WIDTH)


def titled(title: str) -> Table:
    """An empty table without lines."""
    return Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False)
