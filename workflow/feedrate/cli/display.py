"""Tables on stdout."""

from collections.abc import Collection, Iterable, Sequence
from typing import Any

from rich.console import Console, RenderableType
from rich.table import Table

FILE_WIDTH = 1000  # columns of output to a file or a pipe, so that no line is broken


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
    style: dict[str, Any] = {"title_justify": "left", "title_style": "bold", "pad_edge": False}
    result = Table(title=title, show_header=header, box=None, **style)
    for name in columns:
        if name in wrapped:
            result.add_column(name, overflow="fold")
        else:
            result.add_column(name, justify="left" if name in left else "right", no_wrap=True)
    for row in rows:
        result.add_row(*row)
    return result
