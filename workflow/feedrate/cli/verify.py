"""`python -m feedrate verify`: whether an archive is whole, and follows from its own raw events."""

import argparse
import csv
import json
import re
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
from pyarrow.parquet import read_table

from feedrate.cli.archive import environment
from feedrate.cli.redraw import derived, make_again
from feedrate.config.project import Project
from feedrate.config.values import convert
from feedrate.core import paths
from feedrate.core.errors import ExpectedError, first_line
from feedrate.core.files import digest_file
from feedrate.report.text import counted
from feedrate.results.assemble import read_spec
from feedrate.results.crate import ENVIRONMENT, PROJECT, ArchiveError, defects, unpack
from feedrate.results.record import read_outcome, read_quality, read_record

QUALITY = Path(paths.QUALITY).name
CHECKED: dict[str, Callable[[Path], Any]] = {
    paths.SPEC_NAME: read_spec,
    paths.OUTCOME_NAME: read_outcome,
    paths.RECORD_NAME: read_record,
    QUALITY: read_quality,
}
"""The readers of the documents of a run, by file name."""
NOT_COMPARED = ("made_from.parser", "made_from.device")
"""Keys of a record that say which version of the code made it."""
Key = tuple[str, str]
"""A row and a column, or a path or a line and nothing."""
ROW = "row of "
"""With this begin the names of rows."""
ABSENT = object()
"""In place of a value that a file does not have; null is a value."""
_STYLE = re.compile(r"<style>.*?</style>", re.DOTALL)


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of this command."""
    parser.add_argument("archive", metavar="FILE.zip", type=Path)
    told = "a new folder for all that is made again"
    parser.add_argument("--keep", metavar="FOLDER", type=Path, help=told)


def verify(options: argparse.Namespace) -> int:
    """Print the defects of an archive and its differences; return 1 if there are any."""
    if options.keep and options.keep.exists():
        raise ExpectedError(f"--keep {options.keep}: not allowed; it exists")
    found = list(defects(options.archive))
    with tempfile.TemporaryDirectory(prefix="feedrate-") as folder:
        given, made = Path(folder, "given"), Path(folder, "made")
        try:
            unpack(options.archive, given)
            found += check_documents(given)
            number = counted(len(found), "defect") if found else "no defects"
            _tell(f"{options.archive}: {number} in files")
            project = read_project(given, options.archive)
            _tell_versions(given)
            shutil.copytree(given, made)
            make_again(project, made)
            found += differences(given, made)
        except Exception as error:  # what a stranger has written may stop any program
            found.append(f"It cannot be made again: {_reason(error)}.")
        if options.keep and made.exists():
            shutil.copytree(made, options.keep)
        if kept := len(list((given / paths.RESULTS).rglob(QUALITY))):
            _tell(f"taken as they are, because scoring needs the weights: {kept} {QUALITY}")
    for line in found:
        _tell(line)
    failed = f"not verified: {counted(len(found), 'defect')}"
    _tell(failed if found else "verified: nothing differs")
    return 1 if found else 0


def _tell(line: str) -> None:
    """Print a line; what a stranger wrote in it moves no cursor and changes no colour."""
    shown = (c if c.isprintable() else c.encode("unicode_escape").decode() for c in line)
    print("".join(shown))


def check_documents(folder: Path) -> Iterator[str]:
    """A sentence for each document of a run that does not fit its schema, and for each record that
    was made from other logs than those in the archive."""
    documents = sorted((folder / paths.RESULTS).rglob("*.json"))
    for file in (file for file in documents if file.name in CHECKED):
        name = str(file.relative_to(folder))
        try:
            yield from _check_document(file, name)
        except ExpectedError as error:
            yield f"{str(error).replace(f'{folder}/', '')}."
        except Exception as error:  # as in `verify`
            yield f"{name}: cannot be read: {_reason(error)}."


def _check_document(file: Path, name: str) -> Iterator[str]:
    found = CHECKED[file.name](file)
    ended = read_outcome(file.with_name(paths.OUTCOME_NAME))
    if file.name == QUALITY and found.status == "ok" and (not ended or ended.status != "ok"):
        yield f"{name} has scores, but its run did not end well."
    if file.name == paths.RECORD_NAME:
        for log, digest in sorted(found.made_from.files.items()):
            path = file.parent / log
            inside = path.resolve().is_relative_to(file.parent.resolve())
            if not (inside and path.is_file()):
                yield f"{name} was made from {log}, which is not in the archive."
            elif digest_file(path) != digest:
                yield f"{name} was made from {log}, which differs from that in the archive."


def read_project(folder: Path, archive: Path) -> Project:
    """The checked configuration of an unpacked archive. Raises ExpectedError."""
    origin = f"{archive}: {PROJECT}"
    try:
        return convert(json.loads((folder / PROJECT).read_bytes()), Project, origin)
    except (OSError, ValueError, RecursionError) as error:
        raise ArchiveError(f"{origin}: cannot be read ({error})") from None


def _tell_versions(given: Path) -> None:
    """Print the code that made the archive and the code that checks it, if they differ."""
    try:
        then = json.loads((given / ENVIRONMENT).read_bytes())
        now = environment()
        keys = [k for k in ("feedrate", "commit", "python") if then[k] != now[k]]
        told = [f"{key} {then[key] or 'unknown'}, here {now[key] or 'unknown'}" for key in keys]
        packages = {n for n in then["packages"] if then["packages"][n] != now["packages"].get(n)}
    except (OSError, ValueError, LookupError, TypeError, RecursionError) as error:
        raise ArchiveError(f"{ENVIRONMENT}: cannot be read ({error!r})") from None
    if packages:
        told.append(f"{counted(len(packages), 'package')} in other versions")
    if told:
        _tell(f"made with {'; '.join(told)}")


def differences(given: Path, made: Path) -> Iterator[str]:
    """A line for each value in the derived files of an archive that its raw events do not give."""
    for name in sorted({str(f.relative_to(root)) for root in (given, made) for f in derived(root)}):
        file, other = given / name, made / name
        if not (file.is_file() and other.is_file()):
            there = ("in the archive", "among the files made again")[:: 1 if file.is_file() else -1]
            yield f"{name}: {there[0]}, but not {there[1]}"
            continue
        try:
            there_now, again = values(file), values(other)
        except Exception as error:  # as in `verify`
            yield f"{name}: cannot be read: {_reason(error)}"
            continue
        moved = (f"{name}: {line}" for line in _moved(there_now, again))
        # Of a page, only the first line that differs.
        yield from islice(moved, 1 if file.suffix in (".html", ".svg") else None)


def _moved(old: dict[Key, Any], new: dict[Key, Any]) -> Iterator[str]:
    """A line for each value that differs, and one for each row that only one side has."""
    rows, again = {row for row, _ in old}, {row for row, _ in new}
    for row in dict.fromkeys([*rows, *again]):
        if row.startswith(ROW) and row not in rows & again:
            here = "in the archive, but not made again"
            yield f"{row}: {here if row in rows else 'made again, but not in the archive'}"
    for row, column in dict.fromkeys([*old, *new]):
        if row in NOT_COMPARED or (row.startswith(ROW) and row not in rows & again):
            continue
        one, other = (side.get((row, column), ABSENT) for side in (old, new))
        if one != other:
            what = f"{row} {column}".strip()
            yield f"{what}: {_short(one)} in the archive, {_short(other)} made again"


def values(file: Path) -> dict[Key, Any]:
    """All values in a derived file: by the row and column of a table, by a path in a document, by
    a line of a page."""
    if file.suffix == ".json":
        return {(path, ""): value for path, value in flat(msgspec.json.decode(file.read_bytes()))}
    if file.suffix == ".csv":
        with file.open(newline="", encoding="utf-8") as stream:
            return _cells(list(csv.DictReader(stream)))
    if file.suffix == ".parquet":
        return _cells(read_table(file).to_pylist())
    text = _STYLE.sub("", file.read_text(encoding="utf-8")).replace("><", ">\n<")
    return {(f"line {number}", ""): line for number, line in enumerate(text.splitlines(), start=1)}


def _cells(rows: list[dict[str, Any]]) -> dict[Key, Any]:
    """The values of a table. Rows are known by what they are about, wherever they are in it."""
    keys = ("study", "device", "cell", "repeat", "claim", "metric")
    found: dict[Key, Any] = {}
    alike = Counter[str]()
    for row in rows:
        about = " ".join(str(row[key]) for key in keys if row.get(key))
        alike[about] += 1
        name = f"{ROW}{about}" + f", {alike[about]}" * (alike[about] > 1)
        found |= {(name, column): value for column, value in row.items()}
    return found


def flat(value: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    """The values of a document, each with its path: `measurement.samples_per_s`."""
    if isinstance(value, dict) and value:
        for name, item in value.items():
            yield from flat(item, f"{key}.{name}" if key else str(name))
    elif isinstance(value, list) and value:
        for number, item in enumerate(value):
            name = item["name"] if key == "checks" and "name" in item else number
            yield from flat(item, f"{key}[{name}]")
    else:
        yield key, value


def _reason(error: Exception) -> str:
    told = first_line(error)
    return told if isinstance(error, ExpectedError) else f"{type(error).__name__}: {told}"


def _short(value: Any) -> str:
    text = "no such value" if value is ABSENT else "nothing" if value is None else str(value)
    return text if len(text) <= 80 else f"{text[:79]}…"
