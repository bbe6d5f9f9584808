"""The provenance of a study's numbers: machine and software, and every run with its documents,
packed in the page: a reader who has only the page can follow a number to its raw lines."""

import base64
import itertools
import json
import zlib
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from msgspec import to_builtins

from feedrate.core import paths
from feedrate.core.errors import Masker, hide_secrets, without_secrets
from feedrate.report import text
from feedrate.report.context import StudyContext
from feedrate.report.html import address, anchor
from feedrate.report.rows import RunRow
from feedrate.results.record import Record
from feedrate.results.schema import Provenance
from feedrate.results.study_plan import Setup

PACKED = 50
"""Runs whose documents are packed together: they share most of their texts."""
FIRST, LAST, WIDE = 8, 8, 600
"""Lines of a raw log that a page shows, from its start and its end, and their longest."""

_STEPS = {"training": "optimizer step", "inference": "request"}


Records = Mapping[str, Record]
"""Records by the folders of their runs."""


class Machine(NamedTuple):
    """Facts about a device's runs by name, empty where unknown; and the first run's command."""

    label: str
    facts: dict[str, str]
    command: str


class RunLine(NamedTuple):
    """A row of the table of runs. `anchor` is the target of links to the run, `cell_anchor`, which
    only a cell's first run has, that of links to the cell; `address` leads to `anchor`."""

    anchor: str
    cell_anchor: str
    address: str
    packed_in: str
    name: str
    valid: bool
    shown: str
    cause: str
    facts: tuple[str, ...]
    folder: str


def machines(study: StudyContext, runs: Sequence[RunRow], records: Records) -> list[Machine]:
    """The machine and software of each device that has runs."""
    made = [run for run in runs if run.repeat is not None]
    by_device = text.grouped(made, lambda run: run.device)
    return [_machine(study, device, own, records) for device, own in by_device.items()]


def _machine(
    study: StudyContext, device: str, runs: Sequence[RunRow], known_records: Records
) -> Machine:
    """Machine, software, data and protocol. Facts that only records have are those of all records
    that can be read; the command and the machine before it are of the first valid run. The model,
    its batch and its precision are of the valid cells."""
    valid_first = sorted(runs, key=lambda run: run.status != "ok")
    records = [known_records[run.folder] for run in valid_first if run.folder in known_records]
    made = [record.provenance for record in records]
    known = next(iter(made), Provenance())
    lengths = _usual(one.spec.settings.loader.max_tokens for one in records if one.spec)
    good = {run.cell: run for run in runs if run.status == "ok"}.values()
    batch, precision = _usual(run.batch_size for run in good), _usual(run.precision for run in good)
    facts = {
        "Device model": _distinct(run.device_model for run in runs),
        "Driver": _distinct(one.driver for one in made),
        "Firmware": _distinct(", ".join(map(" ".join, one.firmware.items())) for one in made),
        "CPU cores per job": _cores(runs, known),
        "Host": _distinct(run.host for run in runs),
        "bf16 instructions": _distinct(", ".join(one.bf16_instructions) for one in made),
        "Host memory": _distinct(_gib(one.host_memory_gib) for one in made),
        "Memory limit": study.limit(device),
        "Model": _usual(run.model for run in good),
        "Parameters": _usual(run.model_parameters for run in good),
        "Batch": f"{batch} per device, {precision}" if batch else "",
        "Captions": f"cut or padded to {lengths} tokens, for models of text" if lengths else "",
        "Protocol": _protocol(study.setups.get(device), _STEPS[study.task]),
        "Data": _distinct(f"{run.dataset} {run.data_digest[:12]}".strip() for run in runs),
        "Trainer": _distinct(run.library for run in runs),
        "Python": _distinct(" on ".join(filter(None, (m.python, m.platform))) for m in made),
        "Packages": _every(" ", (one.packages for one in made)),
        "Environment variables": _every("=", (one.environment for one in made)),
        "Commit": _distinct(run.commit for run in runs),
        "Source digest": _distinct(run.source_digest[:12] for run in runs),
        "Machine before the first run": _machine_before(known),
        "Measured": _times(runs),
    }
    return Machine(study.label(device), facts, known.command)


def _machine_before(known: Provenance) -> str:
    return ", ".join(
        f"{name.replace('_', ' ').replace('cpu', 'CPU').replace('mhz', 'MHz')} {value}"
        for name, value in known.machine_before.items()
        if value not in ("", None)
    )


def packed_runs(
    study: StudyContext, runs: Sequence[RunRow], records: Records
) -> dict[str, list[RunLine] | dict[str, str]]:
    """All runs with their throughputs as `runs`; as `packed`, their documents by the name of the
    element that holds them."""
    made = [run for run in runs if run.repeat is not None]
    first = {run.key: run for run in reversed(made)}
    lines, packed = list[RunLine](), dict[str, str]()
    for at in range(0, len(made), PACKED):
        name, group = f"{study.study}-records-{at // PACKED}", made[at : at + PACKED]
        lines += [_line(study, run, first[run.key] is run, name) for run in group]
        packed[name] = pack({_anchor(r): documents(r, records.get(r.folder)) for r in group})
    return {"runs": lines, "packed": packed}


def _line(study: StudyContext, run: RunRow, first: bool, packed_in: str) -> RunLine:
    valid = run.status == "ok"
    return RunLine(
        anchor=_anchor(run),
        cell_anchor=anchor(run.study, run.device, run.cell) if first else "",
        address=address(_anchor(run)),
        packed_in=packed_in,
        name=f"{study.label(run.device)}, {text.values_text(run.levels)}, repeat {run.repeat}",
        valid=valid,
        shown=text.number(run.samples_per_s) if valid else text.state(run.status, run.cause),
        cause="" if valid else run.cause,
        facts=(
            run.started_at.replace("T", " ").removesuffix("Z").partition("+")[0],
            text.seconds(run.duration_s),
            str(run.attempt or text.DASH),
        ),
        folder=run.folder,
    )


def _anchor(run: RunRow) -> str:
    return anchor(run.study, run.device, run.cell, run.repeat)


def documents(run: RunRow, record: Record | None) -> dict[str, Any]:
    """The documents behind a run's number, by heading: record, spec, environment, and lines of its
    raw logs. For one that cannot be read, the reason takes its place."""
    if record is None:
        return {"Record": f"There is none: {run.cause or text.STATUS_WORDS[run.status]}"}
    known: dict[str, Any] = to_builtins(record)
    environment, spec = known.pop("provenance"), known.pop("spec")
    folder = Path(run.folder)
    return {
        "Commit": record.provenance.commit or "unknown",
        "Folder": run.folder,
        "Record": known,
        "Spec": spec or "The record has none.",
        "Environment": environment,
        f"Raw events ({paths.EVENTS_NAME})": _lines(folder / paths.EVENTS_NAME),
        f"Raw log ({paths.LOG_NAME})": _lines(folder / paths.LOG_NAME),
    }


def _lines(path: Path) -> str:
    """The first and the last lines of a raw log without secrets, cut at `WIDE` characters."""
    mask = Masker()

    def shown(line: str) -> str:
        return mask(hide_secrets(line))[:WIDE].rstrip()

    try:
        with path.open(encoding="utf-8", errors="replace", newline="\n") as stream:
            head = [shown(line) for line in itertools.islice(stream, FIRST)]
            tail = deque(enumerate(stream, 1 - LAST), LAST)
    except OSError as error:
        return f"cannot be read: {error}"
    left_out = tail[-1][0] if tail else 0
    between = [f"({text.counted(left_out, 'line')} between)"] if left_out > 0 else []
    return "\n".join([*head, *between, *(shown(line) for _, line in tail)]) or "(empty)"


def pack(documents: dict[str, dict[str, Any]]) -> str:
    """The documents of runs as JSON without secrets, deflated, in base64: what the page's script
    unpacks. Those under one heading are together, because they share most of their texts."""
    by_heading: dict[str, dict[str, Any]] = {}
    for run, parts in documents.items():
        for heading, part in parts.items():
            by_heading.setdefault(heading, {})[run] = without_secrets(part)
    plain = json.dumps(by_heading, ensure_ascii=False, separators=(",", ":"))
    return base64.b64encode(zlib.compress(plain.encode(), 9)).decode()


def _every(sign: str, mappings: Iterable[dict[str, str]]) -> str:
    """All names with their values, between them `sign`."""
    return ", ".join(sorted({f"{name}{sign}{v}" for one in mappings for name, v in one.items()}))


def _gib(memory: float | None) -> str:
    return f"{text.number(memory, 3)} GiB" if memory else ""


def _cores(runs: Sequence[RunRow], known: Provenance) -> str:
    granted = _distinct(str(run.cores_granted) for run in runs if run.cores_granted)
    host = f" of the host's {known.cores_of_host}" if granted and known.cores_of_host else ""
    threads = f"; {text.counted(known.intraop_threads or 0, 'thread')} per process"
    return granted + host + (threads if known.intraop_threads else "")


def _protocol(setup: Setup | None, step: str) -> str:
    if setup is None:
        return ""
    return (
        f"{text.counted(setup.steps, step)}, the first {setup.warmup_steps} left out as warm-up; "
        + text.counted(setup.repeats, "repeat")
        + (", interleaved" if setup.repeats > 1 else "")
    )


def _times(runs: Sequence[RunRow]) -> str:
    times = sorted(run.started_at for run in runs if run.started_at)
    if not times:
        return ""
    first, last = (time[:16].replace("T", " ") for time in (times[0], times[-1]))
    return f"first run started {first}, last {last} (UTC)"


def _usual(values: Iterable[Any]) -> str:
    """The value of most cells, with the others; of numbers without a majority, their range."""
    counts = Counter(value for value in values if value)
    names = [f"{v:,}" if isinstance(v, int) else str(v) for v, _ in counts.most_common()]
    if isinstance(next(iter(counts), None), int) and 2 * max(counts.values()) <= counts.total():
        return f"{min(counts):,} to {max(counts):,}"
    others = f"{', '.join(names[1:])} in some cells" if len(names) > 1 else ""
    return text.with_remark(names[0], others) if names else ""


def _distinct(values: Iterable[str]) -> str:
    """The value, or all values where runs differ."""
    return "; ".join(dict.fromkeys(value for value in values if value))
