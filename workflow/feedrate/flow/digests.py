"""The reasons to run a job again: digests of its code and of the files that it reads, and the
number of its attempt. All are fast enough for every plan."""

import json
import stat
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from feedrate.config.settings import Decode, Settings
from feedrate.config.spec import Kind, RunSpec
from feedrate.core import paths
from feedrate.core.files import digest_file, digest_value, write_text
from feedrate.data.hub import PATTERNS
from feedrate.data.manifest import DataError, read_index
from feedrate.flow.syntax import NAME, digest_module
from feedrate.jobs.earlier import inputs_digest, pruned_by
from feedrate.jobs.events import NOT_TRIED
from feedrate.loading.decoders import decoders
from feedrate.results.files import read_noted

PACKAGE = Path(__file__).resolve().parent.parent

SHARED = ("devices/*.py",)
"""The code around device kinds and launchers; `plugins_of` adds a run's own."""
PLUGINS = (
    *("devices/kinds/*.py", "devices/launchers/*.py", "loading/decoders/*.py"),
    "models/builders/*.py",
)
"""All device kinds, launchers, decoders and models, for jobs that try several."""
MEASURED = ("jobs", "devices", "models", "loading")
"""The rooms of the measured work."""


class Code(NamedTuple):
    """The code behind a kind of job: its programs and all modules that these import."""

    programs: tuple[str, ...]
    """Files or globs in the package."""
    rooms: tuple[str, ...] = ()
    """Only modules in these rooms count; empty: all."""


CODE = {
    # The measured work only. Modules that plan, start or watch a job do not count, and a job's
    # settings are in its spec: neither is a reason to train again.
    "measured": Code(("jobs/worker.py", "jobs/train.py", *SHARED), MEASURED),
    "inferred": Code(("jobs/worker.py", "jobs/infer.py", *SHARED), MEASURED),
    "scored": Code(("jobs/score.py", "jobs/worker.py", "jobs/score_model.py", *SHARED), MEASURED),
    "tuned": Code(
        ("cli/tune.py", "jobs/drain.py", "jobs/train.py", *SHARED, *PLUGINS), ("cli", *MEASURED)
    ),
    "predict-rates": Code(("jobs/roofline.py", *PLUGINS), MEASURED),
    "fetched": Code(("data/fetch.py",), ("data",)),
    "weights": Code(("data/hub.py",), ("data",)),
    "winoground": Code(("data/winoground.py",), ("data",)),
    "prepared": Code(("data/prepare.py",), ("data",)),
    "stored": Code(("jobs/store.py",), ("jobs", "models", "loading", "data")),
    "predict-published": Code(("cli/advice.py",)),
    "qualities": Code(("results/collect.py",)),
    "parsed": Code(("results/assemble.py", "logs/formats/*.py")),
    "imported": Code(("results/imported.py", "logs/formats/*.py")),
    "collected": Code(("results/collect.py",)),
    "claimed": Code(("results/claims.py",)),
    "fitted": Code(("results/loader_model.py",)),
    "predict-changes": Code(("results/ledger.py",)),
    "merged": Code(("results/merge.py",)),
    # For a table or figure, the file of its kind is added: an edit of it reruns only that kind.
    "page": Code(("report/page.py",)),
    "card": Code(("report/card.py",)),
    "overview": Code(("report/overview.py",)),
}


@cache
def plugins_of(
    kind: Kind, launcher: str, model: str, level: Decode, library: str = ""
) -> tuple[str, ...]:
    """The files of the plug-ins that a run imports by name. The reference decoder is one of them:
    every run compares its pixels with it."""
    names = {*decoders(level), *decoders(level, kind), *decoders("reference")}
    return (
        f"devices/kinds/{kind}.py",
        f"devices/launchers/{launcher}.py",
        builder(model),
        *(f"loading/decoders/{name}.py" for name in sorted(names)),
        *([f"loading/libraries/{library}.py"] if library else []),
    )


def builder(model: str) -> str:
    """The file of a model's plug-in."""
    return f"models/builders/{model}.py"


class DigestCache:
    """Values computed from files, kept from plan to plan: an unchanged file costs one stat."""

    def __init__(self, path: Path) -> None:
        self._path, self._fresh = path, False
        try:
            self._known: dict[str, list[Any]] = json.loads(path.read_text())
        except (OSError, ValueError):
            self._known = {}

    def digest(self, path: Path, compute: Callable[[Path], Any]) -> Any:
        """`compute(path)`, a JSON value; computed only if the file's size or time has changed."""
        stat = path.stat()
        state = [stat.st_mtime_ns, stat.st_size]
        known = self._known.get(str(path))
        if known and known[:2] == state:
            return known[2]
        value = compute(path)
        self._known[str(path)] = [*state, value]
        self._fresh = True
        return value

    def save(self) -> None:
        """Keep the values for the next plan; a read-only folder is no error."""
        if self._fresh:
            with suppress(OSError):
                write_text(self._path, json.dumps(self._known))
                self._fresh = False


def source_digest(cache: DigestCache, code: Code) -> str:
    """Digest of `code` with all modules it imports, without comments, docstrings and layout."""
    digests: dict[str, str] = {}
    waiting = [file for program in code.programs for file in sorted(PACKAGE.glob(program))]
    seen = set(waiting)
    modules = _modules(PACKAGE)
    while waiting:
        file = waiting.pop()
        value, imports = cache.digest(file, digest_module)
        name = str(file.relative_to(PACKAGE))
        if not code.rooms or name.startswith(tuple(f"{room}/" for room in code.rooms)):
            digests[name] = value
        found = {modules[name] for name in imports if name in modules} - seen
        seen |= found
        waiting += found
    return digest_value(digests)


@cache
def _modules(package: Path) -> dict[str, Path]:
    """The files of a package by the dotted names of their modules."""
    found = {}
    for file in package.rglob("*.py"):
        parts = file.relative_to(package).with_suffix("").parts
        found[".".join((NAME, *parts)).removesuffix(".__init__")] = file
    return found


# Fetched files, and files of the user, that a job reads.

_SHORT = 16
"""Characters of a digest that are used as a param."""


def edited(index_path: Path, cache: DigestCache) -> str:
    """A digest of the fetched files that have changed since; empty if none has, if nothing has been
    fetched yet, and for a folder source, whose files `folder_state` digests."""
    try:
        index = read_index(index_path)
    except (DataError, OSError):
        return ""
    if index.root:
        return ""
    listed = {file.path: file.sha256 for file in [index.rows, *index.files]}
    now = {path: _state(index_path.parent / path, cache) for path in listed}
    different = {path: state for path, state in now.items() if state != listed[path]}
    return digest_value(different)[:_SHORT] if different else ""


def folder_state(path: Path, cache: DigestCache) -> str:
    """A digest of the file `path`, or of the names and contents of all files in the folder `path`
    that are not hidden; "absent" if there is neither. Only regular files are opened."""
    if path.is_file():
        return _state(path, cache)[:_SHORT]
    if not path.is_dir():
        return "absent"
    files = {str(f.relative_to(path)): _state(f, cache) for f in _visible(path)}
    return digest_value(files)[:_SHORT]


def weights_state(folder: Path, cache: DigestCache) -> str:
    """A digest of the names and contents of the files in `folder` that a model is read from;
    "absent" if there are none. Other files, such as a model's card, do not count."""
    files = {file for pattern in PATTERNS for file in folder.glob(pattern)}
    states = {file.name: _state(file, cache) for file in sorted(files)}
    return digest_value(states)[:_SHORT] if states else "absent"


def _visible(folder: Path) -> Iterator[Path]:
    """The files under a folder, by name; links to folders are not followed, to avoid loops."""
    for entry in sorted(folder.iterdir()):
        if entry.name.startswith("."):
            continue
        if entry.is_dir() and not entry.is_symlink():
            yield from _visible(entry)
        else:
            yield entry


def _state(path: Path, cache: DigestCache) -> str:
    """The SHA-256 of a regular file; for anything else, or after an error, a word."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            return "special"
        return cache.digest(path, digest_file)
    except OSError as error:
        return type(error).__name__


def of_run(path: str, spec: RunSpec) -> str:
    """A run's file, for one of the patterns of `core.paths`."""
    return path.format(study=spec.study, device=spec.device, cell=spec.cell, repeat=spec.repeat)


class Attempts:
    """The number of each run's attempt, a param: with a new number a run runs again. Each is read
    once per plan: a job that ends does not change its plan."""

    def __init__(self, digest: Callable[[Path], str] = digest_file) -> None:
        """`digest` computes that of a file; weights are large."""
        self._digest_file = digest
        self._numbers: dict[str, int] = {}
        self._data: dict[str, str] = {}
        self._disturbed: dict[str, dict[str, int]] = {}

    def next(self, file: str, *, holds: Callable[[str], bool] | None = None) -> int:
        """The attempt that makes `file`, a JSON file with a `status`: 1 at first. It goes up after
        a failure, and after a lack of memory whose cause no longer `holds`."""
        if file in self._numbers:
            return self._numbers[file]
        try:
            with open(file, encoding="utf-8") as stream:  # noqa: PTH123 (10,000 of them per plan)
                last = json.load(stream)
            status, cause = last["status"], str(last.get("cause", ""))
            fallen = status == "out_of_memory" and holds is not None and not holds(cause)
            number = int(last["attempt"]) + (status == "failed" or fallen)
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            number = 1
        self._numbers[file] = number
        return number

    def of_run(self, spec: RunSpec, source: str) -> int:
        """The attempt of a run with code of the digest `source`. A run that a ladder left out is
        tried when the ladder or the smaller cell's result no longer excludes it. A run that other
        work on the machine disturbed is tried again, as its record says."""

        def holds(cause: str) -> bool:
            if not cause.startswith(NOT_TRIED):
                return True
            run = paths.run_dir(spec.study, spec.device, spec.cell, spec.repeat)
            made, inputs = (source, self._digest_of(spec.dataset)), self._inputs_of(spec.dataset)
            return pruned_by(spec, made, inputs, run, cause=cause) is not None

        number = self.next(of_run(paths.OUTCOME, spec), holds=holds)
        return number + (self._disturbed_attempt(spec) == number)

    def has_ended(self, spec: RunSpec, source: str) -> bool:
        """Whether the run has a result of its current settings, the current data and weights (if
        they are here) and code with the digest `source`, and nothing disturbed it."""
        try:
            outcome = json.loads(Path(of_run(paths.OUTCOME, spec)).read_bytes())
            tried = not str(outcome["cause"]).startswith(NOT_TRIED)
            made = [outcome[key] for key in ("spec_digest", "source_digest", "data_digest")]
            attempt, status = outcome["attempt"], outcome["status"]
            read = outcome.get("inputs_digest", "")
        except (OSError, ValueError, KeyError, TypeError):
            return False
        data = self._digest_of(spec.dataset) or made[-1]
        current = made == [digest_value(msgspec.to_builtins(spec)), source, data]
        inputs = read and self._inputs_of(spec.dataset)(spec.settings)
        current = current and inputs in ("", read)
        ended = tried and current and status in ("ok", "out_of_memory")
        return ended and attempt != self._disturbed_attempt(spec)

    def _disturbed_attempt(self, spec: RunSpec) -> int | None:
        """The attempt of a run that its record calls disturbed by other work on the machine."""
        records = of_run(paths.RECORDS, spec)
        if records not in self._disturbed:
            self._disturbed[records] = read_noted(Path(records), "disturbed")
        return self._disturbed[records].get(of_run(paths.RUN, spec))

    def _inputs_of(self, dataset: str) -> Callable[[Settings], str]:
        """A function that computes the digest of a run's other inputs, when the plan is made."""
        prepared = Path(paths.MANIFEST.format(dataset=dataset)).parent
        return partial(inputs_digest, prepared=prepared, digest=self._digest_file)

    def _digest_of(self, dataset: str) -> str:
        """The digest of the prepared data when the plan is made."""
        if dataset not in self._data:
            manifest = Path(paths.MANIFEST.format(dataset=dataset))
            self._data[dataset] = digest_file(manifest) if manifest.is_file() else ""
        return self._data[dataset]
