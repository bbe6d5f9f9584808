"""The provenance of a study's numbers: machine and software, and every run with its documents,
packed in the page: a reader who has only the page can follow a number to its raw lines."""

import base64
import itertools
import json
import zlib
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from msgspec import to_builtins

from feedrate.core import paths
from feedrate.core.errors import Masker, hide_secrets
from feedrate.report import text
from feedrate.report.context import StudyContext
from feedrate.report.markup import SAFE, Markup, anchor, el, join, noted, table, wide_row, word
from feedrate.report.rows import RunRow
from feedrate.results.record import Record
from feedrate.results.schema import Provenance
from feedrate.results.study_plan import Setup

PACKED = 50
"""Runs whose documents are packed together: they share most of their texts."""
FIRST, LAST, WIDE = 8, 8, 600
"""Lines of a raw log that a page shows, from its start and its end, and their longest."""

HEADS = ("Run", "samples/s", "Started (UTC)", "Duration", "Attempt", "Folder")
_STEPS = {"training": "optimizer step", "inference": "request"}


Records = Mapping[str, Record]
"""Records by the folders of their runs."""


def provenance(study: StudyContext, runs: Sequence[RunRow], records: Records) -> Markup:
    """A table of facts for each device, then every run with its throughput and its record."""
    made = [run for run in runs if run.repeat is not None]
    parts: list[str] = []
    for device, own in text.grouped(made, lambda run: run.device).items():
        parts.append(el("h3", f"Machine and software: {study.label(device)}"))
        parts.append(_machine(study, device, own, records))
    if not made:
        parts.append(el("p", "No run has a record."))
    every = el("section", el("h3", "Every run"), *_every_run(study, made, records), class_="far")
    return join(*parts, every)


def _machine(
    study: StudyContext, device: str, runs: Sequence[RunRow], known_records: Records
) -> Markup:
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
    lines = [wide_row(name, value, 2) for name, value in facts.items() if value]
    if known.command:
        lines.append(wide_row("Command of the first run", el("code", known.command), 2))
    return table(("Property", "Value"), lines, "texts")


def _machine_before(known: Provenance) -> str:
    return ", ".join(
        f"{name.replace('_', ' ').replace('cpu', 'CPU').replace('mhz', 'MHz')} {value}"
        for name, value in known.machine_before.items()
        if value not in ("", None)
    )


def _run(study: StudyContext, run: RunRow, first: bool, packed: str) -> Markup:
    """The row of a run. Its id is the target of links to the run; the row of a cell's first run
    also holds the target of links to the cell."""
    name = f"{study.label(run.device)}, {text.values_text(run.levels)}, repeat {run.repeat}"
    valid = run.status == "ok"
    shown = text.number(run.samples_per_s) if valid else word(text.state(run.status, run.cause))
    own = _anchor(run)
    link = el("a", shown, href=f"#{quote(own, safe=SAFE)}", class_="record")
    cells = (
        link if valid else noted(link, run.cause),
        run.started_at.replace("T", " ").removesuffix("Z").partition("+")[0],
        text.seconds(run.duration_s),
        str(run.attempt or text.DASH),
        el("code", run.folder) if run.folder else text.DASH,
    )
    of_cell = anchor(run.study, run.device, run.cell)
    head = el("th", el("span", name, id=of_cell) if first else name, scope="row")
    return el("tr", head, *(el("td", cell) for cell in cells), id=own, data_in=packed)


def _every_run(study: StudyContext, runs: Sequence[RunRow], records: Records) -> Iterator[Markup]:
    groups = {
        f"{study.study}-records-{at // PACKED}": runs[at : at + PACKED]
        for at in range(0, len(runs), PACKED)
    }
    first = {run.key: run for run in reversed(runs)}
    packed = ((name, run) for name, group in groups.items() for run in group)
    rows = (_run(study, run, first[run.key] is run, name) for name, run in packed)
    yield table(HEADS, rows, "texts")
    for name, group in groups.items():
        found = {_anchor(run): documents(run, records.get(run.folder)) for run in group}
        yield el("div", id=name, data_packed=pack(found), hidden="hidden")


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
            by_heading.setdefault(heading, {})[run] = json.loads(hide_secrets(json.dumps(part)))
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
        + ", interleaved" * (setup.repeats > 1)
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
    others = f"{', '.join(names[1:])} in some cells" * (len(names) > 1)
    return text.with_remark(names[0], others) if names else ""


def _distinct(values: Iterable[str]) -> str:
    """The value, or all values where runs differ."""
    return "; ".join(dict.fromkeys(value for value in values if value))
