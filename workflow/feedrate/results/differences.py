"""What else differs between two sets of runs: settings, data, code, machine, software."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from feedrate.core.paths import RESULTS

Row = dict[str, Any]
Software = dict[str, str]
"""Version by name: of the driver, Python, the platform and each package."""

SOFTWARE = "software"
"""The key of a run's `Software` in its row: None where its record is not there, empty where the job
told nothing."""
WORK = {"data": "data_digest", "code": "source_digest"}
"""Beside the spec, what makes a run another one, by its column."""
SHOWN = ("device_model", "host", "cores_granted", "commit")
"""Columns that say where, and from what, a run was measured."""
BELOW = ("driver", "Python", "platform")
"""What a `Software` tells where it is known; of packages it tells all that are installed."""
NONE = "none"
"""The version of a package that is not installed."""


class Moved(NamedTuple):
    """A fact that differs between two sets of results on some devices."""

    what: str
    before: str
    after: str
    devices: list[str]


class _Provenance(msgspec.Struct):
    started_at: str = ""
    driver: str = ""
    python: str = ""
    platform: str = ""
    packages: Software = {}


class _Record(msgspec.Struct):
    """What is read of a record.

    All else is passed over, so that records of other versions of feedrate can be read: it is the
    update from them that is looked at.
    """

    provenance: _Provenance


def software_of(run: Row, results_csv: Path) -> Software | None:
    """The software of a run, from its record beside `results_csv`; None where that is not there.

    The row names the record from the root of its clone; beside a copy of the results lies a copy of
    the record, while the clone may have a newer one. A record of another start is not this run's.
    """
    path = Path(run.get("record") or "")
    if not path.is_relative_to(RESULTS):
        return None
    inner = path.relative_to(RESULTS)
    # results.csv of all studies lies in the folder of results, that of a study one below.
    for folder in (results_csv.parent, results_csv.absolute().parent.parent):
        try:
            text = (folder / inner).read_bytes()
            found = msgspec.json.decode(text, type=_Record).provenance
        except (OSError, ValueError):
            continue
        if found.started_at == run.get("started_at"):
            below = zip(BELOW, (found.driver, found.python, found.platform), strict=True)
            known = {name: version for name, version in below if version}
            return known | found.packages if found.packages else {}
    return None


def differing(before: Sequence[Row], after: Sequence[Row]) -> list[str]:
    """What differs between the runs of a cell, as the column `differs` names it.

    Every repeat has a spec of its own, so specs are held against each other repeat by repeat.
    """
    specs = ({run["repeat"]: run.get("spec_digest") for run in runs} for runs in (before, after))
    old, new = specs
    pairs = [(old[k], new[k]) for k in old.keys() & new.keys()]
    found = ["spec"] if any(a != b for a, b in pairs if a and b) else []
    columns = WORK | {name: name for name in SHOWN}
    return found + [
        word for word, column in columns.items() if _apart(_of(before, column), _of(after, column))
    ]


def software_moved(before: Iterable[Row], after: Iterable[Row]) -> list[tuple[str, str, str]]:
    """Name and versions before and after, of all software whose versions differ."""
    old, new = ([r[SOFTWARE] for r in runs if r.get(SOFTWARE)] for runs in (before, after))
    if not (old and new):
        return []
    names = dict.fromkeys(name for software in (*old, *new) for name in software)
    versions = ((name, _versions(name, old), _versions(name, new)) for name in names)
    return [(name, _listed(a), _listed(b)) for name, a, b in versions if _apart(a, b)]


def moved(pairs: Mapping[str, tuple[Sequence[Row], Sequence[Row]]]) -> list[Moved]:
    """All that differs in machine, software and commit, from the runs by device; what several
    devices share stands once."""
    devices: dict[tuple[str, str, str], list[str]] = {}
    for device, (before, after) in pairs.items():
        for fact in (*_shown(before, after), *software_moved(before, after)):
            devices.setdefault(fact, []).append(device)
    return [Moved(*fact, names) for fact, names in devices.items()]


def _versions(name: str, side: Iterable[Software]) -> set[str]:
    if name in BELOW:
        return {software[name] for software in side if name in software}
    return {software.get(name, NONE) for software in side}


def _shown(before: Sequence[Row], after: Sequence[Row]) -> Iterator[tuple[str, str, str]]:
    for column in SHOWN:
        old, new = _of(before, column), _of(after, column)
        if _apart(old, new):
            yield column.replace("_", " "), _listed(old), _listed(new)


def _of(runs: Iterable[Row], column: str) -> set[str]:
    """The values that are known."""
    return {str(value) for run in runs if (value := run.get(column)) not in (None, "")}


def _apart(old: set[str], new: set[str]) -> bool:
    """Whether two sets differ; of what is not known on a side there is nothing to say."""
    return bool(old and new) and old != new


def _listed(values: Iterable[str]) -> str:
    return ", ".join(sorted(values))
