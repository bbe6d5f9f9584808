"""Feed certificates: how many accelerators a host feeds, and what one more would need.

The model has one measured constant for each decode path: the rate limit R of its loader with all C
cores of the host. An accelerator that takes P samples/s is busy for the share `BUSY` of the time if
it gets `BUSY` * P, so the host feeds R / (`BUSY` * P) of them. Where cores are the limit, R grows
with them: n accelerators need n * `BUSY` * P * C / R cores. docs/loading.md has the model's errors.
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any, Literal

from feedrate.config.settings import Settings
from feedrate.config.spec import RunSpec
from feedrate.config.values import Count, Name, Strict, about, convert_text
from feedrate.core import paths
from feedrate.jobs.accelerator import BUSY, Feeding
from feedrate.jobs.feed import Answer, Fed, Level, count_fed

SCHEMA = 1
"""Version of `Certificate`; raise it when a field changes its meaning."""
NOT_COVERED = (
    "copies to the accelerator (PCIe)",
    "page-locked (pinned) memory",
    "kernel launches and other CPU work of the training process",
    "the exchange between accelerators, which makes all wait for the slowest",
    "files that are not in the page cache",
)
SATURATED = 0.9
"""From this share of busy cores on, cores are the limit."""
WAITED = 0.1
"""From this share of time with a process that waits for a disk on, the disk is the limit."""
MEMORY_SHARE = 0.5
"""From this share of the host's copy rate on, memory is the limit."""
DISTURBED = 0.05
"""Share of the cores' time that other work may take in a window."""


class Pace(Strict, kw_only=True):
    """How fast an accelerator takes samples."""

    device: Name
    label: str
    accelerators: Annotated[Count, about("Of the registry entry's job.")]
    model: Annotated[str, about("Name and size of the model.")]
    batch_size: Count
    step_s: Annotated[list[float], about("Time of each step without waiting for data, s.")]
    source: Annotated[str, about("The published row, or the run, and what it says.")]

    @property
    def samples_per_s(self) -> float:
        """Of one accelerator."""
        return self.batch_size / fmean(self.step_s)


class Need(Strict, kw_only=True):
    """What a number of accelerators take of the host at `BUSY`."""

    accelerators: int
    cores: Annotated[float, about("In all; it assumes that the rate grows with the cores.")]
    disk_mb_per_s: Annotated[float, about("Files to read if none is in the page cache, 1e6 B/s.")]
    memory_gb_per_s: Annotated[float, about("Least memory traffic of loading, 1e9 bytes/s.")]


class Certified(Strict, kw_only=True):
    """The result of a decode path."""

    measured: Fed
    feeds: Annotated[float, about("Accelerators, from the rate limit; 0 if refused.")] = 0.0
    fed: Annotated[int, about("Largest measured number, each busy enough.")] = 0
    limited_by: Literal["", "cores", "disk", "memory bandwidth", "unknown"] = ""
    needs: Annotated[list[Need], about("Of one more, and of the entry's whole job.")] = []


class Certificate(Strict, kw_only=True):
    """results/certificates/<device>/<model>/certificate.json."""

    schema: int = SCHEMA
    emulated: Annotated[Literal[True], about("The accelerators are emulated, always.")] = True
    pace: Pace
    dataset: Name
    data_digest: Annotated[str, about("SHA-256 of the prepared data's manifest.")]
    started_at: Annotated[str, about("UTC, ISO 8601.")]
    ended_at: str
    commit: str
    machine: Annotated[dict[str, Any], about("The host, as in a run's start event.")]
    cores: Annotated[int, about("Cores that the measurement was granted.")]
    protocol: dict[str, float]
    host: Annotated[Answer, about("All measurements.")]
    levels: list[Certified]
    not_covered: tuple[str, ...] = NOT_COVERED


def certify(answer: Answer, pace: Pace) -> list[Certified]:
    """The result of each decode path from its measurements."""
    return [_certified(answer, pace, fed) for fed in answer.fed]


def _certified(answer: Answer, pace: Pace, fed: Fed) -> Certified:
    if fed.limit is None:
        return Certified(measured=fed)
    feeds = count_fed(fed.limit.samples_per_s, pace.step_s, pace.batch_size)
    most = max((run.accelerators for run in fed.runs if run.fed), default=0)
    return Certified(
        measured=fed,
        feeds=feeds,
        fed=most,
        limited_by=limit_of(fed, answer),
        needs=[need(answer, pace, fed, n) for n in sorted({most + 1, pace.accelerators})],
    )


def limit_of(fed: Fed, answer: Answer) -> Literal["cores", "disk", "memory bandwidth", "unknown"]:
    """What the host had none left of while the loader was drained."""
    assert fed.limit is not None
    if fed.limit.cores_busy >= SATURATED:
        return "cores"
    if fed.limit.io_waited >= WAITED:
        return "disk"
    moved = fed.limit.samples_per_s * moved_bytes(fed, answer)
    return "memory bandwidth" if moved >= MEMORY_SHARE * answer.copy_bytes_per_s else "unknown"


def moved_bytes(fed: Fed, answer: Answer) -> float:
    """The least bytes a sample moves in memory: the file is read, decoded pixels are written and
    read (how many a scaled decoder makes is unknown), and so is what the model takes."""
    pictures = 0 if fed.level.scaled else answer.picture_bytes
    return answer.file_bytes + 2 * pictures + 2 * answer.crop_bytes


def need(answer: Answer, pace: Pace, fed: Fed, accelerators: int) -> Need:
    """What so many accelerators need with this decode path."""
    assert fed.limit is not None
    rate = accelerators * BUSY * pace.samples_per_s
    return Need(
        accelerators=accelerators,
        cores=rate * answer.cores / fed.limit.samples_per_s,
        disk_mb_per_s=rate * answer.file_bytes / 1e6,
        memory_gb_per_s=rate * moved_bytes(fed, answer) / 1e9,
    )


def page(certificate: Certificate) -> str:
    """The certificate as text."""
    made, pace, host = certificate, certificate.pace, certificate.host
    start, end = (datetime.fromisoformat(one) for one in (made.started_at, made.ended_at))
    file_kb = host.file_bytes / 1e3
    lines = [
        f"Feed certificate: {pace.model} on {pace.label} (emulated)",
        f"Host: {made.machine['host']}, {made.cores} cores, {start:%Y-%m-%d %H:%M} to "
        f"{end:%H:%M} UTC, commit {made.commit[:12] or 'unknown'}",
        f"Pace: {pace.samples_per_s:.4g} samples/s, batches of {pace.batch_size}; {pace.source}",
        f"Data: {made.dataset}, {host.rows} rows, {file_kb:.0f} kB a file; real files, decoding, "
        "tokens and hand-over",
        "",
        *(line for one in made.levels for line in _lines(one, made)),
        "",
        f"Not covered: {'; '.join(made.not_covered)}.",
    ]
    return "\n".join(lines) + "\n"


def _lines(one: Certified, made: Certificate) -> Iterator[str]:
    """The sentences about a decode path."""
    fed, pace, name = one.measured, made.pace, one.measured.level.name
    if fed.limit is None:
        yield f"{name}: no certificate: {fed.refused}."
        return
    more, whole = (need(made.host, pace, fed, n) for n in (one.fed + 1, pace.accelerators))
    yield (
        f"{name}: this host feeds {one.feeds:.1f} {pace.label}s (emulated) of {pace.model} at "
        f"{BUSY:.0%} utilisation with `{name}`{_further(whole, one, made)}."
    )
    tried = sorted(fed.runs, key=lambda run: run.accelerators)
    shares = ", ".join(f"{run.accelerators} busy {min(run.busy):.1%}" for run in tried)
    yield (
        f"  Rate limit {fed.limit.samples_per_s:.4g} samples/s, limited by {one.limited_by}. "
        f"Measured: {shares} (the least busy)."
    )
    yield (
        f"  {more.accelerators} need {more.cores:.2g} cores, {more.disk_mb_per_s:.3g} MB/s of "
        f"files that are not in the page cache, at least {more.memory_gb_per_s:.2g} GB/s of memory "
        f"(copies here reach {made.host.copy_bytes_per_s / 1e9:.2g})."
    )
    if abs(int(one.feeds) - one.fed) > 1:
        yield "  Measured number and rate limit differ by more than one; trust the measured one."
    if (others := max(others_share(run, made.cores) for run in (fed.limit, *tried))) > DISTURBED:
        yield f"  Disturbed: other work took up to {others:.0%} of the cores; measure again."


def _further(whole: Need, one: Certified, made: Certificate) -> str:
    """What the whole job of the registry entry needs, if this host does not feed it."""
    if one.fed >= whole.accelerators:
        return ""
    missing = math.ceil(whole.cores - made.cores)
    if one.limited_by != "cores" or missing <= 0:
        return f"; {whole.accelerators} need more than this host's {one.limited_by}"
    return f"; {whole.accelerators} need {missing} more core{'s' * (missing != 1)}"


def others_share(run: Feeding, cores: int) -> float:
    """Share of the cores' time that was not this measurement's."""
    return max(0.0, run.cores_busy - run.cpu_s * run.samples_per_s / cores)


# What plans take from certificates.


def model_name(settings: Settings) -> str:
    """The model of a certificate: name and size."""
    return f"{settings.model.name}-{settings.model.size}"


def read_certificates(root: Path) -> list[Certificate]:
    """All certificates under `root`. Raises ConfigError for a file that is none."""
    files = sorted(root.glob(paths.CERTIFICATE.format(device="*", model="*")))
    return [convert_text(file.read_text("utf-8"), Certificate, str(file)) for file in files]


def shortfalls(
    specs: Iterable[RunSpec], cores: Mapping[str, int], certificates: Sequence[Certificate]
) -> Iterator[str]:
    """A warning for each study, device and decode path whose planned cells cannot be fed.

    `cores` are those of a job by device. The cells' numbers of workers do not count: fewer workers
    get even less.
    """
    for made in certificates:
        known = {one.measured.level.name: one.measured for one in made.levels}
        cells: Counter[tuple[str, str, int, str]] = Counter()
        for spec in specs:
            loader, device = spec.settings.loader, spec.device
            name = Level(loader.decode, loader.scaled_decode).name
            alike = (device, model_name(spec.settings)) == (made.pace.device, made.pace.model)
            certified = name in known and known[name].limit is not None
            if alike and certified and spec.repeat == 1 and spec.task == "training":
                cells[spec.study, device, spec.count, name] += 1
        for (study, device, count, name), number in cells.items():
            needed = math.ceil(need(made.host, made.pace, known[name], count).cores)
            if needed > cores.get(device, needed):
                yield (
                    f"Warning: {number} cell{'s' * (number != 1)} of {study} on {device} with "
                    f"`{name}` cannot be fed: {count} accelerators need {needed} cores to be busy "
                    f"{BUSY:.0%} of the time, the job has {cores[device]} (feed certificate of "
                    f"{made.machine['host']}, {made.started_at[:10]}; emulated)."
                )
