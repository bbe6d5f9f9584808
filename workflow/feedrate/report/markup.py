"""Tables as HTML. Every text is escaped once, when it becomes markup."""

import functools
import html
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from feedrate.config.errors import ConfigError
from feedrate.config.values import BETWEEN_LEVELS, parse_levels
from feedrate.report import text
from feedrate.report.params import PageSettings, StudyContext
from feedrate.report.rows import CellRow, Inputs, QualityRow, Score, score_text
from feedrate.results.schema import VALUES, Value

STYLE = """
.feedrate{--ink:#1a1a1a;--soft:#555;--line:#d9d9d9;--blue:#0072b2;--red:#a34700;
 max-width:68rem;margin:0 auto;padding:1rem 1.25rem 3rem;color:var(--ink);background:#fff;
 font:16px/1.55 system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif;
 overflow-wrap:break-word}
.feedrate *{box-sizing:border-box}
.feedrate h1{font-size:1.75rem;line-height:1.2;font-weight:700;margin:.2rem 0 1rem}
.feedrate h2{font-size:1.35rem;line-height:1.25;font-weight:700;margin:2.6rem 0 .6rem;
 padding-top:.9rem;border-top:3px solid var(--ink)}
.feedrate h3{font-size:1.08rem;line-height:1.3;font-weight:700;margin:2rem 0 .35rem}
.feedrate p,.feedrate li{max-width:44rem}
.feedrate p{margin:0 0 .7rem}
.feedrate ul{margin:0 0 .9rem;padding-left:1.15rem;list-style:disc}
.feedrate li{margin:.22rem 0;padding:0}
.feedrate li::marker{color:inherit}
.feedrate a{color:var(--blue);text-decoration:underline}
.feedrate code{font:0.86em/1.4 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;
 overflow-wrap:anywhere;background:#f4f4f4;padding:.05em .25em;border-radius:3px}
.feedrate code::before,.feedrate code::after{content:none}
.feedrate small{display:block;font-size:.88em;line-height:1.35;color:var(--soft);font-weight:400}
.feedrate .kicker{margin:0;color:var(--soft);font-size:.9rem}
.feedrate .answer{max-width:47rem;margin:1rem 0;padding:.9rem 1.1rem;background:#eef5fa;
 border-left:6px solid var(--blue)}
.feedrate .answer strong{display:block;font-size:1.3rem;line-height:1.3;font-weight:700}
.feedrate .answer p:last-child{margin:.3rem 0 0}
.feedrate .bad{border-left-color:var(--red);background:#fbf1ea}
.feedrate .bad strong{font-size:1.1rem}
.feedrate .answer ul{margin:.3rem 0 0}
.feedrate .caption{color:var(--soft);font-size:.88rem;margin:.3rem 0 .6rem}
.feedrate .caption p{margin:0 0 .3rem}
.feedrate figure{margin:.6rem 0 1.6rem}
.feedrate img{display:block;width:100%;max-width:44rem;height:auto;margin:0}
.feedrate .scroll{overflow-x:auto;margin:.6rem 0 1.2rem;max-width:100%}
.feedrate table{border-collapse:collapse;font-size:.88rem;line-height:1.4;width:auto;margin:0;
 font-variant-numeric:tabular-nums}
.feedrate th,.feedrate td{padding:.38rem .55rem;text-align:right;vertical-align:top;
 border-bottom:1px solid var(--line);color:var(--ink)}
.feedrate thead th{font-weight:600;vertical-align:bottom;border-bottom:2px solid var(--ink)}
.feedrate th[scope=row],.feedrate thead th:first-child{text-align:left;font-weight:600;
 position:sticky;left:0;background:#fff;min-width:7.5rem}
.feedrate td{white-space:nowrap}
.feedrate td.text,.feedrate .texts td,.feedrate .texts thead th,.feedrate .last-text td:last-child,
.feedrate .last-text thead th:last-child{text-align:left;white-space:normal}
.feedrate .texts td{min-width:5.5rem}
.feedrate .texts td:last-child,.feedrate .last-text td:last-child{min-width:13rem}
.feedrate .texts td.text,.feedrate .last-text td.text{min-width:0}
.feedrate .group th{text-align:left;font-weight:600;color:var(--soft);padding-top:.9rem}
.feedrate .word{font-style:italic;color:var(--red)}
.feedrate .use th,.feedrate .use td{background:#eef5fa;font-weight:600}
.feedrate nav ul{list-style:none;padding:0;display:flex;flex-wrap:wrap;gap:.2rem 1.1rem}
@media (max-width:40rem){
 .feedrate{padding:.8rem .9rem 3rem;font-size:15px}
 .feedrate h1{font-size:1.4rem}
 .feedrate .answer strong{font-size:1.15rem}
 .feedrate th,.feedrate td{padding:.32rem .5rem}
 .feedrate th[scope=row],.feedrate thead th:first-child{min-width:5.8rem;max-width:9rem}
}
@media print{
 .feedrate{max-width:none;padding:0;font-size:10pt}
 .feedrate .scroll{overflow:visible}
 .feedrate table{font-size:7.5pt}
 .feedrate th,.feedrate td{padding:.2rem .35rem}
 .feedrate th[scope=row],.feedrate thead th:first-child{position:static;min-width:0}
 .feedrate tr,.feedrate figure,.feedrate .answer,.feedrate .caption{break-inside:avoid}
 .feedrate h2,.feedrate h3,.feedrate .caption{break-after:avoid}
 .feedrate img{width:auto;max-width:30rem;max-height:18cm}
 .feedrate nav{display:none}
}
"""
"""The style of tables and of the overview. Every rule applies inside `.feedrate` only: Snakemake's
report shows these pages inside its own."""

_OPEN, _CLOSE = '<main class="feedrate">', "</main>"


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


def word(reason: str) -> Markup:
    """The text in place of a number: failed, out of memory, /, a dash."""
    return el("span", reason, class_="word" if reason[:1].isalpha() else "")


def link(name: str, address: str) -> Markup:
    """A link to a web page; only the name where the address is not of the web."""
    if not address.startswith(("https://", "http://")):
        return join(name)
    return el("a", name, href=address, rel="noreferrer")


def row(heading: str, *cells: str | None, class_: str = "") -> Markup:
    """A row of a table, with its heading in the first column."""
    return el("tr", el("th", heading, scope="row"), *(el("td", c) for c in cells), class_=class_)


def wide_row(heading: str, content: str, columns: int) -> Markup:
    """A row whose second cell spans the rest of its `columns`."""
    span = str(columns - 1)
    return el("tr", el("th", heading, scope="row"), el("td", content, colspan=span, class_="text"))


def group_row(heading: str, columns: int) -> Markup:
    """A heading of the rows below it."""
    return el("tr", el("th", heading, colspan=str(columns), scope="rowgroup"), class_="group")


def table(head: Sequence[str], rows: Iterable[Markup], class_: str = "") -> Markup:
    """A table in a box that scrolls sideways where the page is too narrow.

    Columns are numbers; with class `texts` all are text, with `last-text` the last one is.
    """
    heading = el("thead", el("tr", *(el("th", cell, scope="col") for cell in head)))
    content = el("table", heading, el("tbody", *rows), class_=class_)
    return el("div", content, class_="scroll", tabindex="0")


def page(title: str, *content: str | None) -> str:
    """A complete page that needs no other file."""
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{html.escape(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n"
        f"{_OPEN}{join(*content)}{_CLOSE}\n</body>\n</html>\n"
    )


def as_page(
    render: Callable[[PageSettings, Inputs], Markup],
) -> Callable[[PageSettings, Inputs], str]:
    """Decorate the `render` of a table: its content becomes a complete page."""

    @functools.wraps(render)
    def whole(settings: PageSettings, inputs: Inputs) -> str:
        return page(settings.title, render(settings, inputs))

    return whole


def content_of(path: Path) -> Markup:
    """The content of a page that `page` made. Raises ConfigError for any other file."""
    _, opened, rest = path.read_text(encoding="utf-8").partition(_OPEN)
    content, closed, _ = rest.rpartition(_CLOSE)
    if not (opened and closed):
        raise ConfigError(f"{path}: not a table page of this report")
    return Markup(content)


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
    devices. `recommend` highlights recommended cells.
    """
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
    return table([study.factor_labels, *columns], rows, class_)


def _cell_rows(
    cells: Sequence[CellRow], columns: Mapping[str, Field], recommend: bool
) -> Iterator[Markup]:
    """The rows of one device."""
    width = 1 + len(columns)
    for cell in cells:
        name = text.values_text(cell.levels)
        if cell.measured_as:
            same = text.values_text(parse_levels(cell.measured_as, BETWEEN_LEVELS))
            yield wide_row(name, small(f"The runs of {same}: what differs has no effect."), width)
        elif cell.samples_per_s is not None:
            use = "use" * (recommend and cell.recommended)
            yield row(name, *(field(cell) for field in columns.values()), class_=use)
        elif cell.status != "unsupported":
            reason = join(word(text.STATUS_WORDS[cell.status]), small(cell.cause))
            yield wide_row(name, reason, width)
    unsupported = (cell for cell in cells if cell.status == "unsupported")
    for cause, group in text.grouped(unsupported, lambda cell: cell.cause).items():
        count = text.count(len(group), "cell")
        names = "; ".join(text.values_text(cell.levels) for cell in group)
        yield wide_row("/", join(word(f"{count} not supported"), small(f"{cause} {names}.")), width)


def loss_flag(cell: CellRow) -> str:
    """The loss's distance from the baseline's, where seeds do not explain it; else empty."""
    if not cell.loss_departs or cell.loss_shift is None or cell.loss_seeds is None:
        return ""
    return (
        f"different quality: loss {cell.loss_shift:+.3f} from the baseline's, "
        f"effect of seeds {cell.loss_seeds:.3f}"
    )


SPEED: dict[str, Field] = {
    "Throughput (samples/s)": lambda cell: join(
        text.number(cell.samples_per_s),
        small(text.interval(cell.ci_low, cell.ci_high)),
        small(loss_flag(cell)),
    ),
    "Speed-up over the baseline": lambda cell: join(
        text.ratio(cell.speedup),
        small(text.ratio_interval(cell.speedup_ci_low, cell.speedup_ci_high)),
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
MFU: dict[str, Field] = {
    VALUES[name].extra: EXTRA.pop(VALUES[name].extra) for name in ("mfu", "mfu_real_tokens")
}
COSTS: dict[str, Field] = {
    **EXTRA,
    "USD per million samples": lambda cell: text.number(cell.usd_per_million_samples, 3),
}


# Scores


def score_field(score: Score | None, metric: str) -> Markup:
    """A score with its interval below it."""
    value, interval = score_text(score, metric)
    return join(value, small(interval))


def not_scored_rows(rows: Sequence[QualityRow], width: int) -> Iterator[Markup]:
    """A row for each run without a model to score."""
    for one in rows:
        if one.status != "ok":
            name = f"{text.values_text(one.levels)}, repeat {one.repeat}"
            yield wide_row(name, join(word("not scored"), small(one.cause)), width)
