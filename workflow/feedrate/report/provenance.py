"""The provenance of a study's numbers: machine and software, and every run with its documents,
packed in the page: a reader who has only the page can follow a number to its raw lines."""

import base64
import itertools
import json
import zlib
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from msgspec import to_builtins

from feedrate.core import paths
from feedrate.core.secrets import Masker, hide_secrets, without_secrets
from feedrate.report import text
from feedrate.report.html import address, anchor
from feedrate.report.rows import RunRow
from feedrate.report.study import StudyResults
from feedrate.results.record import Record

PACKED = 50
"""Runs whose documents are packed together: they share most of their texts."""
FIRST, LAST, WIDE = 8, 8, 600
"""Lines of a raw log that the page shows, from its start and its end, and their longest."""


class RunLine(NamedTuple):
    """A row of the table of runs. `anchor` is the target of links to the run, `cell_anchor`, which
    only a cell's first run has, that of links to the cell; `address` leads to `anchor`."""

    anchor: str
    cell_anchor: str
    address: str
    packed_in: str
    name: str
    valid: bool
    rate: str
    cause: str
    facts: tuple[str, ...]
    folder: str


def headline(study: StudyResults) -> list[str]:
    """A line for each device: machine, model, batch, precision, data, date and number of runs."""
    lines = []
    for device in study.devices:
        runs = [r for r in study.runs if r.device == device and not r.measured_as]
        good = [run for run in runs if run.samples_per_s] or runs
        cores = _usual(run.cores_granted for run in good)
        machine = _usual(run.device_model for run in good) or study.label(device)
        days = sorted({run.started_at[:10] for run in runs if run.started_at})
        not_run = ("no result", "not supported", "not tried")
        launched = [run for run in runs if text.state(run.status, run.cause) not in not_run]
        devices = max((run.world_size or 1 for run in good), default=1)
        dataset = _usual(run.dataset for run in good)
        parts = [
            machine,
            text.counted(devices, "device"),
            f"{cores} CPU cores" if cores else "",
            text.listed(dict.fromkeys(run.model for run in good if run.model)),
            f"batch {batch}" if (batch := _usual(run.batch_size for run in launched)) else "",
            text.listed(dict.fromkeys(run.precision for run in good if run.precision)),
            "generated pictures" if study.is_drawn(dataset) else dataset,
            " to ".join(dict.fromkeys((days[0], days[-1]))) if days else "",
            text.counted(len(launched), "run"),
        ]
        lines.append(" · ".join(filter(None, parts)))
    return lines


def machines(study: StudyResults) -> Iterator[tuple[str, dict[str, str]]]:
    """Each device's label with its facts by name, empty where unknown. A fact in which runs differ
    has all its values; the command is the first valid run's."""
    for device in study.devices:
        mine = [run for run in study.runs if run.device == device]
        runs = sorted(mine, key=lambda run: run.status != "ok")
        records = [study.records[run.folder] for run in runs if run.folder in study.records]
        if not records:
            continue
        provenances = [record.provenance for record in records]
        limit_gib = study.memory_limit_gib(device)
        protocols = [record.spec.protocol for record in records if record.spec]
        repeats = max(run.repeat for run in runs)
        times = sorted(run.started_at[:16] for run in runs if run.started_at)
        facts = {
            "Device model": _distinct(run.device_model for run in runs),
            "Driver": _distinct(job.driver for job in provenances),
            "Firmware": _distinct(
                ", ".join(map(" ".join, job.firmware.items())) for job in provenances
            ),
            "CPU cores per job": _distinct(str(job.cores_granted or "") for job in provenances),
            "CPU cores of the host": _distinct(str(job.cores_of_host or "") for job in provenances),
            "Threads per process": _distinct(str(job.intraop_threads or "") for job in provenances),
            "Host": _distinct(run.host for run in runs),
            "bf16 instructions": _distinct(", ".join(job.bf16_instructions) for job in provenances),
            "Host memory": _distinct(
                f"{text.number(job.host_memory_gib)} GiB" if job.host_memory_gib else ""
                for job in provenances
            ),
            "Memory limit": f"{limit_gib:g} GiB per process" if limit_gib else "",
            "Model": _distinct(
                f"{r.spec.settings.model.name}-{r.spec.settings.model.size}, "
                f"{text.integer(r.model_parameters)} parameters"
                for r in records
                if r.spec
            ),
            "Data": _distinct(f"{run.dataset} {run.data_digest[:12]}".strip() for run in runs),
            "Steps": _distinct(
                f"{p.steps}, the first {p.warmup_steps} left out" for p in protocols
            ),
            "Repeats": f"{repeats}, interleaved" if repeats > 1 else "1",
            "Trainer": _distinct(run.library for run in runs),
            "Python": _distinct(f"{job.python} {job.platform}".strip() for job in provenances),
            "Packages": _every(" ", (job.packages for job in provenances)),
            "Environment variables": _every("=", (job.environment for job in provenances)),
            "Commit": _distinct(run.commit for run in runs),
            "Source digest": _distinct(run.source_digest[:12] for run in runs),
            "Measured": " to ".join(dict.fromkeys((times[0], times[-1]))) if times else "",
            "Command of the first valid run": provenances[0].command,
        }
        mask = Masker()
        yield study.label(device), {k: mask(hide_secrets(value)) for k, value in facts.items()}


def packed_runs(study: StudyResults) -> tuple[list[RunLine], dict[str, str]]:
    """All runs; and their documents, packed, by the name of the element that holds them."""
    supported = [run for run in study.runs if run.status != "unsupported"]
    first = {run.key: run for run in reversed(supported)}
    lines, packed = list[RunLine](), dict[str, str]()
    for at in range(0, len(supported), PACKED):
        name, group = f"{study.name}-records-{at // PACKED}", supported[at : at + PACKED]
        lines += [_line(study, run, first[run.key] is run, name) for run in group]
        of_runs = {_anchor(r): documents(r, study.records.get(r.folder)) for r in group}
        packed[name] = pack(of_runs)
    return lines, packed


def _line(study: StudyResults, run: RunRow, first: bool, packed_in: str) -> RunLine:
    valid = run.status == "ok"
    started = run.started_at.replace("T", " ").removesuffix("Z").partition("+")[0]
    return RunLine(
        anchor=_anchor(run),
        cell_anchor=anchor(run.study, run.device, run.cell) if first else "",
        address=address(_anchor(run)),
        packed_in=packed_in,
        name=f"{study.label(run.device)}, {text.values_text(run.levels)}, repeat {run.repeat}",
        valid=valid,
        rate=text.number(run.samples_per_s) if valid else text.state(run.status, run.cause),
        cause="" if valid else run.cause,
        facts=(started, text.seconds(run.duration_s), str(run.attempt or text.DASH)),
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
    return ", ".join(
        sorted({f"{name}{sign}{v}" for mapping in mappings for name, v in mapping.items()})
    )


def _usual(values: Iterable[Any]) -> str:
    """The value of most runs; of numbers that differ, their range."""
    counts = Counter(value for value in values if value)
    if not counts:
        return ""
    value, _ = counts.most_common(1)[0]
    if isinstance(value, int):
        return " to ".join(f"{end:,}" for end in dict.fromkeys((min(counts), max(counts))))
    return str(value)


def _distinct(values: Iterable[str]) -> str:
    """The value, or all values where runs differ."""
    return "; ".join(dict.fromkeys(value for value in values if value))
