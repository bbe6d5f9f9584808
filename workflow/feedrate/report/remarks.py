"""What the folded parts of a page say: why settings differ, and the method and its noise."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

from msgspec.structs import asdict

from feedrate.config.study import SourceProtocol
from feedrate.report import text
from feedrate.report.html import Statement, sentence
from feedrate.report.rows import CellRow
from feedrate.report.sentences import largest, names, speed
from feedrate.report.study import StudyResults, Trace
from feedrate.results.statistics import REPEATABILITY, noise_by_device

REASONS = 5
"""Reasons that the sentence on data left out gives: the most frequent."""


def reasons(study: StudyResults) -> Iterator[Statement]:
    """The sentences of the part "why": answers at other levels, limits by setting, losses."""
    for device in study.devices:
        label = f"{study.label(device)}: " if len(study.devices) > 1 else ""
        for answer in study.answers:
            if answer.device != device or answer == study.answer(device):
                continue
            if study.asks == "speed":
                yield Statement(label + speed(study, answer).text, [answer])
            elif study.asks == "largest" and study.along not in study.study.within:
                lines = study.lines_of_answer(device, answer)
                yield Statement(label + largest(study, lines, answer).text, [answer])
        good = [c for c in study.tried if c.device == device and c.limit]
        groups = text.grouped(good, lambda cell: cell.limit)
        limits = [(limit, names(study, cells)) for limit, cells in groups.items()]
        if limits:
            yield Statement(label + sentence("limits", groups=limits), good)
    own = [cell for cell in study.tried if cell.loss_shift is not None]
    equal = [cell for cell in own if cell.loss_identical]
    differing = [cell for cell in own if cell.loss_departs]
    if equal or differing:
        words = [study.setting(cell.levels) for cell in differing]
        yield Statement(
            sentence("equal_losses", settings=len(equal), differing=words), [*equal, *differing]
        )


def remarks(study: StudyResults) -> Iterator[Statement]:
    """The sentences of the part "method and noise"."""
    for (_, device), noise in noise_by_device(map(asdict, study.runs)).items():
        mine = [c for c in study.tried if c.device == device and c.ok_runs > 1]
        if noise and mine:
            runs = text.listed(str(n) for n in sorted({cell.ok_runs for cell in mine}))
            share, drift = noise.sd * REPEATABILITY, study.by_share(device)
            facts = {"share": share, "repeats": runs, "cells": len(mine), "drift_removed": drift}
            yield Statement(sentence("noise", **facts), mine)
    disturbed = text.grouped((c for c in study.tried if c.disturbed), lambda c: c.disturbed)
    for cause, cells in disturbed.items():
        yield Statement(sentence("disturbed", settings=[names(study, cells)], causes=cause), cells)
    yield from _mixed_software(study)
    yield from _source_window(study)
    yield from _data(study)


def _data(study: StudyResults) -> Iterator[Statement]:
    """What of the data was left out, and what is in several splits."""
    report = study.data_report(dict[str, Any]) or {}
    if by_reason := Counter[str](report.get("rows_left_out_by_reason")):
        reasons = by_reason.most_common(REASONS)
        words = [f"{reason} ({text.counted(rows, 'row')})" for reason, rows in reasons]
        yield Statement(sentence("left_out", report=report, reasons=words))
    if images := report.get("images_in_several_splits"):
        yield Statement(sentence("several_splits", images=images))


def _source_window(study: StudyResults) -> Iterator[Statement]:
    """How our runs would have been timed by the protocol of the source, if it states one."""
    protocol = study.study.source.protocol
    if protocol != SourceProtocol():
        rates = [(trace.run, source_rate(trace, protocol)) for trace in study.traces]
        changes = [rate / run.samples_per_s - 1 for run, rate in rates if rate]
        if changes:
            left_out = text.counted(protocol.warmup_steps, "step")
            low, high = map(text.signed_percent, (min(changes), max(changes)))
            words = sentence("source_window", left_out=left_out, low=low, high=high)
            yield Statement(words, [run for run, rate in rates if rate])


def source_rate(trace: Trace, protocol: SourceProtocol) -> float | None:
    """The rate by the source's protocol, samples/s: from its warm-up to the end of its epochs, with
    their boundaries, as far as the run went; without pauses for checkpoints and evaluations."""
    last = trace.steps[-1].step
    if protocol.epochs and trace.run.steps_per_epoch:
        last = min(last, protocol.epochs * trace.run.steps_per_epoch)
    steps = [step for step in trace.steps if protocol.warmup_steps < step.step <= last]
    samples = sum(step.samples or 0 for step in steps) * (trace.run.world_size or 1)
    return samples / sum(step.step_s for step in steps) if steps else None


def _mixed_software(study: StudyResults) -> Iterator[Statement]:
    """The settings whose ok runs differ in their driver or packages."""
    mixed, changed = list[CellRow](), set[str]()
    for cell in study.tried:
        runs = [run for run in study.runs_of(cell) if run.status == "ok"]
        records = [study.records[run.folder] for run in runs if run.folder in study.records]
        machines = [record.provenance for record in records if record.provenance.packages]
        software = [each.packages | {"the driver": each.driver} for each in machines]
        every = {name for packages in software for name in packages}
        differ = {n for n in every if len({packages.get(n) for packages in software}) > 1}
        if differ:
            mixed.append(cell)
            changed |= differ
    if mixed:
        words = [study.setting(cell.levels) for cell in mixed]
        yield Statement(sentence("mixed_software", packages=sorted(changed), settings=words), mixed)
