"""HTML made from text: every text is escaped, once, where it enters."""

import html
from collections.abc import Iterable, Sequence
from pathlib import Path

from feedrate.config.load import ConfigError
from feedrate.report.style import STYLE

_OPEN, _CLOSE = '<main class="feedrate">', "</main>"


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


def el(name: str, *content: str | None, **attributes: str) -> Markup:
    """An element; plain texts in it are escaped, and `class_` stands for class."""
    return Markup(f"{void(name, **attributes)}{join(*content)}</{name}>")


def void(name: str, **attributes: str) -> Markup:
    """An opening tag alone, as for an image."""
    opening = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{html.escape(value)}"'
        for key, value in attributes.items()
        if value
    )
    return Markup(f"<{name}{opening}>")


def join(*content: str | None) -> Markup:
    """Pieces of text and HTML, one after the other."""
    return Markup("".join(p if isinstance(p, Markup) else html.escape(p) for p in content if p))


def small(text: str) -> Markup:
    """A remark on a line of its own, such as an interval below its number."""
    return el("small", text) if text else Markup()


def word(text: str) -> Markup:
    """What stands in a cell in place of a number: failed, out of memory, /, a dash."""
    return el("span", text, class_="word" if text[:1].isalpha() else "")


def link(text: str, address: str) -> Markup:
    """A link to a page on the web; any other address is only written."""
    if not address.startswith(("https://", "http://")):
        return join(text)
    return el("a", text, href=address, rel="noreferrer")


def row(cells: Sequence[str | None], class_: str = "") -> Markup:
    """A row of a table; its first cell is its heading."""
    first, *others = cells
    return el("tr", el("th", first, scope="row"), *(el("td", c) for c in others), class_=class_)


def wide_row(heading: str, content: str, columns: int) -> Markup:
    """A row whose second cell runs over the rest of its `columns`."""
    span = str(columns - 1)
    return el("tr", el("th", heading, scope="row"), el("td", content, colspan=span, class_="text"))


def group_row(heading: str, columns: int) -> Markup:
    """A line that names the rows below it."""
    return el("tr", el("th", heading, colspan=str(columns), scope="rowgroup"), class_="group")


def table(head: Sequence[str], rows: Iterable[Markup], class_: str = "") -> Markup:
    """A table in a box of its own, which scrolls sideways where the page is too narrow.

    Class `texts`: all columns are text; `last-text`: the last one is; else they are numbers.
    """
    heading = el("thead", el("tr", *(el("th", cell, scope="col") for cell in head)))
    content = el("table", heading, el("tbody", *rows), class_=class_)
    return el("div", content, class_="scroll", tabindex="0")


def page(title: str, *content: str) -> str:
    """A whole page that needs nothing from anywhere."""
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{html.escape(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n"
        f"{_OPEN}{join(*content)}{_CLOSE}\n</body>\n</html>\n"
    )


def content_of(path: Path) -> Markup:
    """What stands in the middle of a page that `page` made. Raises ConfigError for others."""
    text = path.read_text(encoding="utf-8")
    _, opened, rest = text.partition(_OPEN)
    content, closed, _ = rest.rpartition(_CLOSE)
    if not (opened and closed):
        raise ConfigError(f"{path}: not a table page of this report")
    return Markup(content)
