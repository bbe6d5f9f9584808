"""The finding about loaders alone: the rate of each decode path beside the baseline's."""

from collections.abc import Sequence
from statistics import median

from feedrate.report import text
from feedrate.report.lines import notable
from feedrate.report.params import StudySettings
from feedrate.report.rows import CellOf, CellRow, RunRow
from feedrate.results.settings import DECODE, WORKERS
from feedrate.results.statistics import pooled_noise, ratio_interval

Said = tuple[str, Sequence[CellOf]]
"""A sentence, and the cells or runs that it rests on."""
LEVEL = 0.95
"""Confidence of the intervals, which hold together."""


def loader_rates(study: StudySettings, cells: Sequence[CellRow], runs: Sequence[RunRow]) -> Said:
    """The loader-only throughput of each decode path, where a study compares several; else empty.

    Only cells with as many workers as the baseline are compared.
    """
    factors = {factor.sets: name for name, factor in study.factors.items()}
    workers = factors.get(WORKERS, "")
    usual = study.baseline.get(workers)
    alike = [c for c in cells if c.loader_samples_per_s and c.levels.get(workers) == usual]
    base = next((cell for cell in alike if cell.levels == study.baseline), None)
    if DECODE not in factors or base is None or len(alike) < 2:
        return "", ()
    good = [(r.key, r.loader_samples_per_s) for r in runs if r.status == "ok"]
    found = {c.key: [rate for key, rate in good if key == c.key and rate] for c in alike}
    rates = {cell.key: found[cell.key] or [cell.loader_samples_per_s] for cell in alike}
    noise, told = pooled_noise(rates.values()), []
    for cell in alike:
        others = {name: v for name, v in cell.levels.items() if name != workers}
        name = text.levels_text(notable(study, others)) or "the baseline"
        own = rates[cell.key]
        ratio, *ends = ratio_interval(own, rates[base.key], LEVEL, noise, len(alike) - 1)
        sure = " to ".join(text.number(end, 3) for end in ends if end) or "no interval: single runs"
        times = text.TIMES + text.number(ratio, 3) + f", {sure}" * (cell is not base)
        told.append(f"{name} {text.number(median(own), 3)} samples/s ({times})")
    where = f"With {workers} = {usual}: " if workers else ""
    sentences = [f"{where}{text.listed(told)}."]
    if models := [cell.model_samples_per_s for cell in cells if cell.model_samples_per_s]:
        sentences.append(f"Model-only throughput is {text.number(median(models), 3)} samples/s.")
    return " ".join(sentences), alike
