"""Feed certificates: how many accelerators a host feeds, and what one more would need.

An accelerator is fed if it is busy for the share `BUSY` of the time. If N + 1 are too many, and the
least busy of them is busy for b, the host feeds (N + 1) b / `BUSY` (at least N: these were fed).
Where cores are the limit, that grows with them: if C cores feed F, n accelerators need C n / F.
certificate.md has the errors of this model.
"""

import math
from collections.abc import Iterator
from statistics import fmean
from typing import Annotated, Any, Literal

from feedrate.config.values import Count, Name, Strict, about, rate_text
from feedrate_loaders.accelerator import BUSY, Feeding
from feedrate_loaders.feed import Answer, Fed, count_fed

NOT_COVERED = (
    "copies to the accelerator (PCIe)",
    "page-locked (pinned) memory",
    "kernel launches and other CPU work of the training process",
    "the exchange between accelerators, which makes all wait for the slowest",
    "files that are not in the page cache",
)
SATURATED, WAITED, COPYING = 0.9, 0.1, 0.5
"""Shares from which cores, disk or memory are the limit: of the cores' time, of the time in which
a process waits for a disk, and of the rate at which the host copies memory."""
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


class Certified(Strict, kw_only=True):
    """The result of a decode path; the last three fields are what each accelerator needs."""

    measured: Fed
    drained: Annotated[float, about("Accelerators, predicted by the loader alone.")] = 0.0
    feeds: Annotated[float, about("Accelerators, from the rate limit; 0 if refused.")] = 0.0
    fed: Annotated[int, about("Largest measured number, each busy enough.")] = 0
    at_least: Annotated[bool, about("No number was too many: `feeds` is predicted.")] = False
    limited_by: Limit = ""
    cores: Annotated[float, about("If the rate grows with the cores.")] = 0.0
    disk_mb_per_s: Annotated[float, about("Of files outside the page cache, 1e6 bytes/s.")] = 0.0
    memory_gb_per_s: Annotated[float, about("Least memory traffic, 1e9 bytes/s.")] = 0.0


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
    rate = BUSY * pace.samples_per_s
    for fed in answer.fed:
        if fed.limit is None:
            yield Certified(measured=fed)
            continue
        drained = count_fed(fed.limit.samples_per_s, pace.step_s, pace.batch_size)
        most = max((run.accelerators for run in fed.runs if run.fed), default=0)
        unfed = {run.accelerators: min(run.busy) for run in fed.runs if not run.fed}
        feeds = max(most, min(unfed) * unfed[min(unfed)] / BUSY if unfed else drained)
        # How many pixels a scaled decoder makes is unknown.
        pictures = 0 if fed.level.scaled else answer.picture_bytes
        moved_bytes = answer.file_bytes + 2 * pictures + 2 * answer.crop_bytes
        yield Certified(
            measured=fed,
            drained=drained,
            feeds=feeds,
            fed=most,
            at_least=not unfed,
            limited_by=limit_of(fed.limit, moved_bytes / answer.copy_bytes_per_s),
            cores=answer.cores / feeds,
            disk_mb_per_s=rate * answer.file_bytes / 1e6,
            memory_gb_per_s=rate * moved_bytes / 1e9,
        )


def limit_of(limit: Feeding, copied_s: float) -> Limit:
    """The resource that the host exhausted while a loader was drained; `copied_s` is the time in
    which it copies the bytes that a sample moves at least."""
    if limit.cores_busy is None:
        return "unknown"
    if limit.cores_busy >= SATURATED:
        return "cores"
    if limit.io_waited >= WAITED:
        return "disk"
    return "memory bandwidth" if limit.samples_per_s * copied_s >= COPYING else "unknown"


def page(made: Certificate) -> str:
    """The certificate as text."""
    pace, host = made.pace, made.host
    lines = [
        f"Feed certificate: {pace.model} on {pace.label} (emulated)",
        f"Host: {made.machine['host']}, {host.cores} cores, {made.started_at} to {made.ended_at}, "
        f"commit {made.commit[:12] or 'unknown'}",
        f"Pace: {rate_text(pace.samples_per_s)} samples/s, batches of {pace.batch_size}; "
        f"{pace.source}",
        f"Data: {made.dataset}, {host.rows} rows, {host.file_bytes / 1e3:.0f} kB a file; real "
        "files, decoding, tokens and hand-over",
        *(line for one in made.levels for line in ("", *_lines(one, pace, host))),
        "",
        f"Not covered: {'; '.join(made.not_covered)}.",
    ]
    return "\n".join(lines) + "\n"


def _lines(one: Certified, pace: Pace, host: Answer) -> Iterator[str]:
    """The sentences about a decode path."""
    fed, name, whole, more = one.measured, one.measured.level.name, pace.accelerators, one.fed + 1
    if fed.limit is None:
        yield f"No certificate for `{name}`: {fed.refused}."
        return
    missing, further = math.ceil(whole * one.cores - host.cores), ""
    if one.fed < whole:
        further = f"; {whole} need {missing} more core{'s' * (missing != 1)}"
        if one.limited_by != "cores" or missing <= 0:
            further = f"; its limit is {one.limited_by}, and more cores may not help"
    tenths = math.floor(round(one.feeds * 10, 6))  # 3.96 is not 4, which are not fed
    feeds = f"at least {one.fed}" if one.at_least else f"{tenths / 10}"
    yield (
        f"This host feeds {feeds} {pace.label}s (emulated) of {pace.model} at {BUSY:.0%} "
        f"utilisation with `{name}`{further}."
    )
    yield (
        f"  Rate limit: {rate_text(one.feeds * BUSY * pace.samples_per_s)} samples/s (by "
        f"{one.limited_by}). Measured: {fed.tried} (the least busy). Predicted: "
        f"{one.drained:.1f}."
    )
    yield (
        f"  For {more}: {more * one.cores:.3g} cores, {more * one.disk_mb_per_s:.3g} MB/s of files "
        f"not in the page cache, at least {more * one.memory_gb_per_s:.2g} GB/s of memory (copies "
        f"here: {host.copy_bytes_per_s / 1e9:.2g})."
    )
    if not one.at_least and abs(int(one.drained) - one.fed) > 1:
        yield "  The measured and the predicted number differ by more than one: trust the measured."
    busy = [(run, run.cores_busy) for run in (fed.limit, *fed.runs) if run.cores_busy is not None]
    used = (share - run.cpu_s * run.samples_per_s / host.cores for run, share in busy)
    if (others := max(used, default=0.0)) > DISTURBED:
        yield f"  Disturbed: other work took up to {others:.0%} of the cores; measure again."
