"""Runs that other programs left in a folder: its files by format, and the figures in each.

Files are as found in the wild: Git LFS pointers, truncated, in UTF-16, with progress bars and
control characters, of any size. Text is read line by line in bounded memory.
"""

import codecs
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from feedrate.config.values import Level, Strict
from feedrate.core import plugins
from feedrate.core.errors import LogError, first_line
from feedrate.core.paths import RECORD_NAME
from feedrate.jobs.causes import Cause
from feedrate.logs.trainer import TrainerFigures, number, trainer_figures

FORMATS = "feedrate.logs.formats"
LONGEST_LINE = 2**20
"""Characters after which a line is cut."""
LONGEST_JSON_BYTES = 256 * 2**20
LFS = b"version https://git-lfs.github.com/spec/"
LOG_ORDER = 4
"""`Found.order` of a log: a folder may hold those of several jobs."""
SAME_RUNTIME = 1e-3
"""Share by which the runtimes of one run may differ among its files, which round them."""
CHECKPOINT = re.compile(r"checkpoint-\d+")
_CONTROL = re.compile(
    r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)"
    r"|[\x00-\x08\x0b-\x1a\x1c-\x1f\x7f\ufeff]+|\x1b"
)
UNKNOWN = Cause("unknown")


@dataclass(frozen=True, kw_only=True)
class Found:
    """The content of one file about one run; `metrics` have the Trainer's own keys."""

    metrics: Mapping[str, Any] = field(default_factory=dict)
    evaluation: Mapping[str, float] = field(default_factory=dict)
    cause: Cause = UNKNOWN
    order: int = 9
    """Of files with one key, that with the smallest number counts."""
    label: str = ""
    """The run's name within the file, if the file has several."""
    device: str = ""
    """The device as the file calls it."""
    study: str = ""
    levels: Mapping[str, Level] = field(default_factory=dict)
    """The study and its levels, if the file names them."""
    library: str = ""
    resumed_from: int | None = None
    """The step at which the job went on with an earlier one's weights."""
    note: str = ""
    files: tuple[str, ...] = ()

    @property
    def runtime_s(self) -> float | None:
        """The time of the whole training."""
        return number(self.metrics.get("train_runtime"))


class ReadFile(Strict, kw_only=True):
    """The result for a file: its format, and what could not be read, or how it was read."""

    file: str
    format: str = ""
    note: str = ""


def find_runs(folder: Path) -> tuple[list[Found], list[ReadFile]]:
    """The runs in `folder` and below, and each file's fate. Raises LogError without `folder`."""
    if not folder.exists():
        raise LogError(f"{folder}: no such folder or file")
    base = folder if folder.is_dir() else folder.parent
    paths = [folder] if folder.is_file() else sorted(p for p in folder.rglob("*") if p.is_file())
    patterns = plugins.declared(FORMATS, "IMPORTS")
    groups: dict[Path, list[Found]] = {}
    files: list[ReadFile] = []
    recorded = {path.parent for path in paths if path.name == RECORD_NAME}
    for path in paths:
        name = str(path.relative_to(base))
        if path.name != RECORD_NAME and recorded.intersection(path.parents):
            files.append(ReadFile(file=name, note=f"its run has a {RECORD_NAME}, which counts"))
            continue
        fitting = [
            (-len(p), f) for f, known in patterns.items() for p in known if fnmatch(path.name, p)
        ]
        formats = dict.fromkeys(one for _, one in sorted(fitting))  # the closest name first
        found, read = _read(path, name, formats)
        files.append(read)
        if formats:
            groups.setdefault(_run_folder(path, base), []).extend(found)
    return [run for group in groups.values() for run in merged(group)], files


def trainer_files(folder: Path) -> Iterator[Path]:
    """The files in a Trainer's folder that the formats read."""
    for patterns in plugins.declared(FORMATS, "FILES").values():
        for pattern in patterns:
            yield from folder.glob(pattern)


def read_trainer(
    folder: Path, library: str = "", known: Mapping[str, Any] | None = None
) -> TrainerFigures:
    """The Trainer's figures from the files in `folder`: a run of ours or a published one.

    `known` metrics take precedence. Formats are read in their order until one of them has the
    runtime. The rate of a progress bar alone is no figure of the Trainer.
    """
    metrics = dict(known or {})
    for runs in _of_trainer(folder):
        whole = [one for one in runs if one.order < LOG_ORDER or one.runtime_s is not None]
        metrics = {**_together(whole).metrics, **metrics}
        if "train_runtime" in metrics:
            break
    return trainer_figures(metrics, library)


def read_evaluations(folder: Path) -> dict[str, float]:
    """All evaluation figures in a Trainer's JSON files, as `eval_*` and `predict_*`."""
    return dict(_together(next(_of_trainer(folder))).evaluation)


def _of_trainer(folder: Path) -> Iterator[list[Found]]:
    """What each format finds in a Trainer's folder, by the order of the formats, which import
    nothing heavy before they are used; of several files of a kind, the newest is last. Files that
    cannot be read are left out."""
    order, files = (plugins.declared(FORMATS, name) for name in ("ORDER", "FILES"))
    for name in sorted(order, key=order.__getitem__):
        paths = {path for pattern in files[name] for path in folder.glob(pattern)}
        found: list[Found] = []
        for path in sorted(paths):  # names of events have their time
            with suppress(LogError, OSError):
                found += plugins.load(FORMATS, name).read(path)
        yield found


def _read(path: Path, name: str, formats: Iterable[str]) -> tuple[list[Found], ReadFile]:
    """The figures of a file in the first of `formats` that finds anything."""
    notes: list[str] = []
    for known in formats:
        try:
            found = [replace(one, files=(name,)) for one in plugins.load(FORMATS, known).read(path)]
        except (LogError, OSError) as error:
            notes.append(first_line(error).removeprefix(f"{path.name}: "))
        except Exception as error:  # one bad file must not cost the others their runs
            notes.append(f"{type(error).__name__}: {error}")
        else:
            if found:
                told = "; ".join(dict.fromkeys(one.note for one in found if one.note))
                return found, ReadFile(file=name, format=known, note=told)
            notes.append("it has neither training metrics nor the end of a training run")
    if not notes:
        notes = ["no format of results or logs has this name"]
    return [], ReadFile(file=name, note="; ".join(dict.fromkeys(notes)))


def _run_folder(path: Path, base: Path) -> Path:
    """The folder of the run that a file belongs to: checkpoints and `runs` are within it."""
    parts = path.parent.relative_to(base).parts
    events = "tfevents" in path.name
    for number_of, part in enumerate(parts):
        if CHECKPOINT.fullmatch(part) or (events and part == "runs"):
            return base.joinpath(*parts[:number_of])
    return path.parent


def merged(found: Iterable[Found]) -> Iterator[Found]:
    """One for each run among the files of a folder.

    Files with the same runtime are of one run. A file without one belongs to the only run, unless
    it is one of several jobs in a log, or the log of another job.
    """
    labelled: list[Found] = []
    loose: list[Found] = []
    timed: list[list[Found]] = []
    for one in sorted(found, key=lambda one: one.order):
        if one.label:
            labelled.append(one)
        elif (runtime := one.runtime_s) is None:
            loose.append(one)
        else:
            for group in timed:
                if math.isclose(group[0].runtime_s or 0, runtime, rel_tol=SAME_RUNTIME):
                    group.append(one)
                    break
            else:
                timed.append([one])
    alone = len(timed) <= 1 and sum(one.order >= LOG_ORDER for one in loose) <= 1
    if loose and alone and not _other_job(loose, timed):
        timed = [[*(timed[0] if timed else []), *loose]]
    else:
        timed += [[one] for one in loose]
    yield from map(_together, timed)
    yield from labelled


def _other_job(loose: Iterable[Found], timed: Iterable[Iterable[Found]]) -> bool:
    """Whether a log that ends with an error is next to another job's log, which has the figures.
    Two files of one job have one name, as its .out and .err."""

    def stems(found: Iterable[Found]) -> set[str]:
        return {Path(file).stem for one in found if one.order >= LOG_ORDER for file in one.files}

    failed = stems(one for one in loose if one.cause.name not in ("success", "unknown"))
    finished = stems(one for group in timed for one in group)
    return bool(failed and finished and not failed & finished)


def _together(group: list[Found]) -> Found:
    """One run of several files; of those with the same order, the last counts."""
    metrics: dict[str, Any] = {}
    evaluation: dict[str, float] = {}
    for one in sorted(group, key=lambda one: -one.order):
        metrics |= one.metrics
        evaluation |= one.evaluation
    causes = [one.cause for one in group if one.cause.name != "unknown"]
    first = {"NaN or zero loss": 0, "success": 1}
    return replace(
        group[0] if group else Found(),
        metrics=metrics,
        evaluation=evaluation,
        cause=min(causes, key=lambda cause: first.get(cause.name, 2), default=UNKNOWN),
        resumed_from=next((o.resumed_from for o in group if o.resumed_from is not None), None),
        library=next((one.library for one in group if one.library), ""),
        files=tuple(file for one in group for file in one.files),
    )


def lines(path: Path) -> Iterator[str]:
    """The lines of a text file without control characters; a progress bar's steps are lines.

    UTF-16 is recognised by its mark or by its zeros; other bytes that are not UTF-8 are replaced.
    Raises LogError for a file that is not text.
    """
    with path.open("rb") as stream:
        encoding = _encoding(path, stream.read(4096))
    with path.open(encoding=encoding, errors="replace") as text:
        while part := text.readline(LONGEST_LINE):
            if line := part.rstrip("\n"):
                yield line if line.isprintable() else _CONTROL.sub("", line)


def _encoding(path: Path, head: bytes) -> str:
    refuse_pointer(path, head)
    if head[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
        return "utf-16"
    zeros = [head[start::2].count(0) / max(len(head) / 2, 1) for start in (0, 1)]
    if max(zeros) > 0.3 and min(zeros) < 0.1:  # Latin letters in UTF-16
        return "utf-16-be" if zeros[0] > zeros[1] else "utf-16-le"
    if max(zeros) > 0.1 and not re.search(rb"[\r\n]", head):
        raise LogError(f"{path.name}: not text")
    return "utf-8"


def refuse_pointer(path: Path, head: bytes) -> None:
    """Raise LogError for a file that is empty, or a pointer to one that Git LFS has not fetched."""
    if not head:
        raise LogError(f"{path.name}: empty")
    if head.startswith(LFS):
        raise LogError(
            f"{path.name}: a Git LFS pointer instead of the file; `git lfs pull` gets it"
        )


def load_json(path: Path) -> dict[str, Any]:
    """A JSON object. Raises LogError with the reason why there is none."""
    if path.stat().st_size > LONGEST_JSON_BYTES:
        raise LogError(f"{path.name}: larger than {LONGEST_JSON_BYTES >> 20} MiB, so not read")
    content = path.read_bytes()
    refuse_pointer(path, content)
    try:
        value = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise LogError(f"{path.name}: truncated or not JSON ({error})") from None
    if not isinstance(value, dict):
        raise LogError(f"{path.name}: not a JSON object")
    return value
