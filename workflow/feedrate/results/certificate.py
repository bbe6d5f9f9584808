"""Feed certificates: how many accelerators a host feeds, and what one more would need.

An accelerator is fed if it is busy for the share `BUSY` of the time. If N + 1 are too many, and the
least busy of them is busy for b, the host feeds (N + 1) b / `BUSY` (at least N: these were fed).
Where cores are the limit, that grows with them: if C cores feed F, n accelerators need C n / F.
docs/certificate.md has the errors of this model.
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any, Literal

from feedrate.config.spec import RunSpec
from feedrate.config.values import Count, Name, Strict, about, convert_text
from feedrate.core import paths
from feedrate.jobs.accelerator import BUSY, Feeding
from feedrate.jobs.feed import Answer, Fed, Level, count_fed

NOT_COVERED = (
    "copies to the accelerator (PCIe)",
    "page-locked (pinned) memory",
    "kernel launches and other CPU work of the training process",
    "the exchange between accelerators, which makes all wait for the slowest",
    "files that are not in the page cache",
)
SATURATED, WAITED, COPYING = 0.9, 0.1, 0.5
"""From these shares on, something is the limit: of the cores' time, of the time in which a process
waits for a disk, and of the rate at which the host copies memory."""
DISTURBED = 0.05
"""Share of the cores' time that other work may take in a window."""

Limit = Literal["", "cores", "disk", "memory bandwidth", "unknown"]


class Pace(Strict, kw_only=True):
    """How fast an accelerator takes samples."""

    device: Name
    label: str
    accelerators: Annotated[Count, about("Of the registry entry's job.")]
    model: Annotated[str, about("Name and size of the model.")]
    batch_size: Count
    step_s: Annotated[list[float], about("Time of each step without waiting for data, s.")]
    source: Annotated[str, about("The published row or the run, and what it says.")]

    @property
    def samples_per_s(self) -> float:
        """Of one accelerator."""
        return self.batch_size / fmean(self.step_s)


class Need(Strict, kw_only=True):
    """What a number of accelerators take of the host at `BUSY`."""

    accelerators: int
    cores: Annotated[float, about("In all, if the rate grows with the cores.")]
    disk_mb_per_s: Annotated[float, about("Of files that are not in the page cache, 1e6 bytes/s.")]
    memory_gb_per_s: Annotated[float, about("Least memory traffic of loading, 1e9 bytes/s.")]


class Certified(Strict, kw_only=True):
    """The result of a decode path."""

    measured: Fed
    drained: Annotated[float, about("Accelerators, predicted by a drain.")] = 0.0
    feeds: Annotated[float, about("Accelerators, from the rate limit; 0 if refused.")] = 0.0
    fed: Annotated[int, about("Largest measured number, each busy enough.")] = 0
    limited_by: Limit = ""
    needs: Annotated[list[Need], about("Of one more, and of the entry's whole job.")] = []


class Certificate(Strict, kw_only=True):
    """results/certificates/<device>/<model>/certificate.json."""

    schema: int = 1
    emulated: Annotated[Literal[True], about("The accelerators are emulated, always.")] = True
    pace: Pace
    dataset: Name
    data_digest: Annotated[str, about("SHA-256 of the prepared data's manifest.")]
    started_at: Annotated[str, about("UTC, ISO 8601.")]
    ended_at: str
    commit: str
    machine: Annotated[dict[str, Any], about("The host, as in a run's start event.")]
    protocol: Annotated[dict[str, float], about("Share of busy time, least warm-up and window.")]
    host: Annotated[Answer, about("All measurements.")]
    levels: list[Certified]
    not_covered: tuple[str, ...] = NOT_COVERED


def judge(answer: Answer, pace: Pace) -> Iterator[Certified]:
    """The result of each decode path from its measurements."""
    for fed in answer.fed:
        if fed.limit is None:
            yield Certified(measured=fed)
            continue
        drained = count_fed(fed.limit.samples_per_s, pace.step_s, pace.batch_size)
        most, feeds = count_limit(fed, drained)
        yield Certified(
            measured=fed,
            drained=drained,
            feeds=feeds,
            fed=most,
            limited_by=limit_of(fed.limit, moved_bytes(fed, answer) / answer.copy_bytes_per_s),
            needs=[need(answer, pace, fed, feeds, n) for n in (most + 1, pace.accelerators)],
        )


def count_limit(fed: Fed, drained: float) -> tuple[int, float]:
    """The largest number that is fed, and how many are, from the first number that is not; without
    one as `drained` says."""
    most = max((run.accelerators for run in fed.runs if run.fed), default=0)
    unfed = {run.accelerators: run for run in fed.runs if not run.fed}
    if not unfed:
        return most, drained
    return most, max(most, min(unfed) * min(unfed[min(unfed)].busy) / BUSY)


def limit_of(limit: Feeding, copied_s: float) -> Limit:
    """What the host had none left of while a loader was drained; `copied_s`: the time in which it
    copies the bytes of a sample."""
    if limit.cores_busy is None:
        return "unknown"
    if limit.cores_busy >= SATURATED:
        return "cores"
    if limit.io_waited >= WAITED:
        return "disk"
    return "memory bandwidth" if limit.samples_per_s * copied_s >= COPYING else "unknown"


def moved_bytes(fed: Fed, answer: Answer) -> float:
    """The least bytes a sample moves in memory: the file is read, decoded pixels are written and
    read (how many a scaled decoder makes is unknown), and so is what the model takes."""
    pictures = 0 if fed.level.scaled else answer.picture_bytes
    return answer.file_bytes + 2 * pictures + 2 * answer.crop_bytes


def need(answer: Answer, pace: Pace, fed: Fed, feeds: float, accelerators: int) -> Need:
    """What so many accelerators need with this decode path, of which the host feeds `feeds`."""
    rate = accelerators * BUSY * pace.samples_per_s
    return Need(
        accelerators=accelerators,
        cores=answer.cores * accelerators / feeds,
        disk_mb_per_s=rate * answer.file_bytes / 1e6,
        memory_gb_per_s=rate * moved_bytes(fed, answer) / 1e9,
    )


def page(made: Certificate) -> str:
    """The certificate as text."""
    pace, host = made.pace, made.host
    lines = [
        f"Feed certificate: {pace.model} on {pace.label} (emulated)",
        f"Host: {made.machine['host']}, {host.cores} cores, {made.started_at} to {made.ended_at}, "
        f"commit {made.commit[:12] or 'unknown'}",
        f"Pace: {pace.samples_per_s:.4g} samples/s, batches of {pace.batch_size}; {pace.source}",
        f"Data: {made.dataset}, {host.rows} rows, {host.file_bytes / 1e3:.0f} kB a file; real "
        "files, decoding, tokens and hand-over",
        *(line for one in made.levels for line in ("", *_lines(one, made))),
        "",
        f"Not covered: {'; '.join(made.not_covered)}.",
    ]
    return "\n".join(lines) + "\n"


def _lines(one: Certified, made: Certificate) -> Iterator[str]:
    """The sentences about a decode path."""
    fed, pace, cores, name = one.measured, made.pace, made.host.cores, one.measured.level.name
    if fed.limit is None:
        yield f"No certificate for `{name}`: {fed.refused}."
        return
    more, whole = one.needs
    missing, further = math.ceil(whole.cores - cores), ""
    if one.fed < whole.accelerators:
        further = f"; {whole.accelerators} need {missing} more core{'s' * (missing != 1)}"
        if one.limited_by != "cores" or missing <= 0:
            further = f"; its limit is {one.limited_by}, and more cores may not help"
    yield (
        f"This host feeds {one.feeds:.1f} {pace.label}s (emulated) of {pace.model} at {BUSY:.0%} "
        f"utilisation with `{name}`{further}."
    )
    tried = sorted(fed.runs, key=lambda run: run.accelerators)
    shares = ", ".join(f"{run.accelerators} busy {min(run.busy):.1%}" for run in tried)
    rate = one.feeds * BUSY * pace.samples_per_s
    yield (
        f"  Rate limit: {rate:.4g} samples/s (by {one.limited_by}). "
        f"Measured: {shares} (the least busy). A drain predicted {one.drained:.1f}."
    )
    yield (
        f"  For {more.accelerators}: {more.cores:.2g} cores, {more.disk_mb_per_s:.3g} MB/s of "
        f"files not in the page cache, at least {more.memory_gb_per_s:.2g} GB/s of memory (copies "
        f"here: {made.host.copy_bytes_per_s / 1e9:.2g})."
    )
    if abs(int(one.drained) - one.fed) > 1:
        yield "  Measured and predicted number differ by more than one; trust the measured one."
    windows = (fed.limit, *tried)
    busy = [(run, run.cores_busy) for run in windows if run.cores_busy is not None]
    others = max((b - run.cpu_s * run.samples_per_s / cores for run, b in busy), default=0.0)
    if others > DISTURBED:
        yield f"  Disturbed: other work took up to {others:.0%} of the cores; measure again."


def read_certificates(root: Path) -> list[Certificate]:
    """All certificates under `root`. Raises ConfigError for a file that is none."""
    files = sorted(root.glob(paths.CERTIFICATE.format(device="*", model="*")))
    return [convert_text(file.read_text("utf-8"), Certificate, str(file)) for file in files]


def shortfalls(
    specs: Iterable[RunSpec], cores: Mapping[str, int], certificates: Sequence[Certificate]
) -> Iterator[str]:
    """A warning for each study, device and decode path whose planned cells cannot be fed by a job's
    `cores`, by device. Workers do not count: fewer get even less."""
    cells = Counter(
        (spec.study, spec.device, spec.count, spec.settings.model.label, Level.of(loader).name)
        for spec in specs
        if spec.repeat == 1 and spec.task == "training" and spec.device in cores
        for loader in [spec.settings.loader]
    )
    for (study, device, count, model, name), number in cells.items():
        for made in certificates:
            feeds = {one.measured.level.name: one.feeds for one in made.levels}.get(name)
            if not feeds or (made.pace.device, made.pace.model) != (device, model):
                continue
            needed = math.ceil(made.host.cores * count / feeds)
            if needed > cores[device]:
                yield (
                    f"Warning: {number} cell{'s' * (number != 1)} of {study} on {device} with "
                    f"`{name}` cannot be fed: {count} accelerators need {needed} cores to be busy "
                    f"{BUSY:.0%} of the time, the job has {cores[device]} (feed certificate of "
                    f"{made.machine['host']}, {made.started_at[:10]}; emulated)."
                )
