"""Write docs/sources.md from config/published/sources/*.yaml: `python docs/make_sources.py`."""

import html
from collections.abc import Iterator
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

import yaml

from feedrate.core import plugins

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "config/published/sources"
PAGE = ROOT / "docs/sources.md"
MARK = "<!-- generated from config/published/sources -->\n"
"""Everything after it in the page is generated."""
HEADS = ("What it says", "Where it is here", "Command", "Status")
STATUSES = {
    "audited": "recomputed without training",
    "cpu": "runs on any machine",
    "device": "ready",
    "not_reproducible": "not reproducible",
}
REQUIRED = {
    "audited": ("here", "command"),
    "cpu": ("here", "command"),
    "device": ("here", "command", "needs"),
    "not_reproducible": ("why",),
}
"""The keys that a row of each status must have."""
FILES = {
    **dict.fromkeys(("study", "claim", "level"), "../config/studies/{}.yaml"),
    "published": "../config/published/{}.csv",
    "device": "../config/devices.yaml",
    "command": "../Makefile",
}
"""The file of a reference, from docs/."""
REGISTERS = {
    "table": ("feedrate.report.tables", "TABLES"),
    "figure": ("feedrate.report.figures", "FIGURES"),
}
"""By kind of reference: the package whose files register what it names, and under which name."""


class Statement(NamedTuple):
    """A statement, number, experiment, system, technique or figure of a source."""

    section: str  # its heading, figure or table in the source
    says: str  # its words, or a short paraphrase
    status: str
    # study:STUDY, claim:STUDY/ID, published:FILE/ROW, table:NAME, level:STUDY/FACTOR=LEVEL,
    # figure:NAME, device:NAME or command:TARGET; * is any text
    here: tuple[str, ...] = ()
    command: str = ""  # make TARGET with STUDY and DEVICE
    needs: tuple[str, ...] = ()  # devices of config/devices.yaml
    why: str = ""  # why it is not reproducible; elsewhere a remark


class Source(NamedTuple):
    """A file in config/published/sources/."""

    title: str
    address: str
    rows: list[Statement]


def read_sources(folder: Path = FOLDER) -> dict[str, Source]:
    """All sources by file name. Raises ValueError for a row with a wrong or missing key."""
    sources = {}
    for file in sorted(folder.glob("*.yaml")):
        content = yaml.safe_load(file.read_text(encoding="utf-8"))
        rows = []
        for number, entry in enumerate(content["rows"]):
            place = f"{file.name} rows[{number}]"
            try:
                row = Statement(**entry)
                missing = [key for key in REQUIRED[row.status] if not getattr(row, key)]
            except (TypeError, KeyError) as error:
                raise ValueError(f"{place}: {error}") from None
            if missing:
                raise ValueError(f"{place}: status {row.status} requires {', '.join(missing)}")
            rows.append(row)
        sources[file.stem] = Source(content["title"], content.get("address", ""), rows)
    return sources


def page(written: str) -> str:
    """The page with its generated part made again."""
    return written.partition(MARK)[0] + MARK + "\n".join(_lines())


def _lines() -> Iterator[str]:
    """A table for each section of each source."""
    for source in read_sources().values():
        yield f"## [{source.title}]({source.address})" if source.address else f"## {source.title}"
        yield ""
        for section, rows in groupby(source.rows, lambda row: row.section):
            yield from (f"**{section}**", "", f"| {' | '.join(HEADS)} |", "|" + "---|" * len(HEADS))
            for row in rows:
                places = _cell(*(f"[`{name}`]({_file(name)})" for name in row.here))
                command = f"`{row.command}`" if row.command else ""
                status = _cell(STATUSES[row.status], _remark(row))
                yield f"| {_cell(row.says)} | {places} | {command} | {status} |"
            yield ""


def _remark(row: Statement) -> str:
    needs = f"needs {', '.join(row.needs)}" if row.needs else ""
    about = "a measurement " if needs and row.status == "audited" else ""
    return ". ".join(filter(None, (about + needs, row.why)))


def _cell(*texts: str) -> str:
    return "<br>".join(html.escape(text, False) for text in texts if text).replace("|", "\\|")


def _file(reference: str) -> str:
    kind, _, name = reference.partition(":")
    if kind in REGISTERS:
        return f"../{registered()[reference].relative_to(ROOT)}"
    return FILES[kind].format(name.partition("/")[0])


@cache
def registered() -> dict[str, Path]:
    """The files of tables and figures, by the references to them."""
    files = {}
    for kind, (package, register) in REGISTERS.items():
        for plugin in plugins.names(package):
            for entry in getattr(plugins.load(package, plugin), register):
                files[f"{kind}:{entry.name}"] = plugins.file(package, plugin)
    return files


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
