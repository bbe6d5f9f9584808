"""Tables on stdout."""

from collections.abc import Collection, Iterable, Sequence

from rich.console import Console, RenderableType
from rich.table import Table

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
