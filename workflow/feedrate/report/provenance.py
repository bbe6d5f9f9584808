"""Where the numbers come from: machine, software, commands, times, and the record of every run."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from feedrate.report import text
from feedrate.report.markup import Markup, el, join, row, small, table, wide_row, word
from feedrate.report.params import Setup, StudySettings
from feedrate.report.rows import RunRow
from feedrate.results.record import Record, RecordError, read_record
from feedrate.results.schema import Provenance

LISTED = 500
"""Runs that the page lists one by one."""
_STEPS = {"training": "optimizer step", "inference": "request"}


def machines(study: StudySettings, runs: Sequence[RunRow]) -> Markup:
    """A table for each device; where its runs differ, all values are listed."""
    made = [run for run in runs if run.repeat is not None]
    parts: list[str] = []
    for device in dict.fromkeys(run.device for run in made):
        parts.append(el("h3", f"Machine and software: {study.label(device)}"))
        parts.append(_machine(study, device, [run for run in made if run.device == device]))
    return join(*parts) if parts else el("p", "No run has a record.")


def every_run(study: StudySettings, runs: Sequence[RunRow]) -> Markup:
    """Every run with its throughput and its record."""
    made = [run for run in runs if run.repeat is not None]
    lines = [_run(study, run) for run in made[:LISTED]]
    rest = len(made) - len(lines)
    more = el("p", f"And {text.count(rest, 'run')} more, in results.csv.") if rest > 0 else None
    heads = ("Run", "samples/s", "Started (UTC)", "Duration", "Attempt", "Record")
    return join(table(heads, lines, "texts"), more)


def _machine(study: StudySettings, device: str, runs: Sequence[RunRow]) -> Markup:
    record = _first_record(runs)
    known = record.provenance if record else Provenance()
    setup, state = study.setups.get(device), known.machine_before
    facts = {
        "Device model": _distinct(run.device_model for run in runs),
        "Driver": known.driver,
        "CPU cores per job": _cores(runs, known),
        "Host": _distinct(run.host for run in runs),
        "bf16 instructions": ", ".join(known.bf16_instructions),
        "Host memory": f"{text.number(known.host_memory_gib, 3)} GiB" * bool(known.host_memory_gib),
        "Model": f"{setup.model} {setup.size}" if setup else "",
        "Parameters": f"{record.model_parameters:,}" if record and record.model_parameters else "",
        "Batch": f"{setup.batch_size} per device, {setup.precision}" if setup else "",
        "Protocol": _protocol(setup, _STEPS[study.task]) if setup else "",
        "Data": _distinct(f"{run.dataset} {run.data_digest[:12]}".strip() for run in runs),
        "Trainer": _distinct(run.library for run in runs),
        "Python": " on ".join(filter(None, (known.python, known.platform))),
        "Packages": ", ".join(f"{name} {version}" for name, version in known.packages.items()),
        "Commit": _distinct(run.commit for run in runs),
        "Source digest": known.source_digest[:12],
        "Machine state before the run": ", ".join(
            f"{name} {value}" for name, value in state.items() if value not in ("", None)
        ),
        "Measured": _times(runs),
    }
    lines = [wide_row(name, value, 2) for name, value in facts.items() if value]
    if known.command:
        lines.append(wide_row("Command", el("code", known.command), 2))
    return table(("Property", ""), lines, "texts")


def _run(study: StudySettings, run: RunRow) -> Markup:
    reason = join(word(text.STATUS_WORDS[run.status]), small(run.cause))
    return row(
        [
            f"{study.label(run.device)}, {text.values_text(run.levels)}, repeat {run.repeat}",
            text.number(run.samples_per_s) if run.status == "ok" else reason,
            run.started_at.replace("T", " ").removesuffix("Z").partition("+")[0],
            text.seconds(run.duration_s),
            str(run.attempt or text.DASH),
            el("code", run.record) if run.record else text.DASH,
        ]
    )


def _first_record(runs: Sequence[RunRow]) -> Record | None:
    """The record of the first valid run, otherwise the first that can be read."""
    for run in sorted(runs, key=lambda run: run.status != "ok"):
        try:
            return read_record(Path(run.record))
        except (RecordError, OSError):
            continue
    return None


def _cores(runs: Sequence[RunRow], known: Provenance) -> str:
    granted = _distinct(str(run.cores_granted) for run in runs if run.cores_granted)
    host = f" of the host's {known.cores_of_host}" if granted and known.cores_of_host else ""
    threads = f"; {text.count(known.intraop_threads or 0, 'thread')} per process"
    return granted + host + (threads if known.intraop_threads else "")


def _protocol(setup: Setup, step: str) -> str:
    return (
        f"{text.count(setup.steps, step)}, the first {setup.warmup_steps} left out as warm-up; "
        f"{text.count(setup.repeats, 'repeat')}, interleaved"
    )


def _times(runs: Sequence[RunRow]) -> str:
    times = sorted(run.started_at for run in runs if run.started_at)
    if not times:
        return ""
    first, last = (time[:16].replace("T", " ") for time in (times[0], times[-1]))
    return f"first run started {first}, last {last} (UTC)"


def _distinct(values: Iterable[str]) -> str:
    """The value, or all values where runs differ."""
    return "; ".join(dict.fromkeys(value for value in values if value))
