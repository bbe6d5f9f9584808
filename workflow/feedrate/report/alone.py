"""What loaders make with no model beside them, in a sentence."""

from collections.abc import Sequence
from statistics import median

from feedrate.report import text
from feedrate.report.grid import told
from feedrate.report.rows import CellRow
from feedrate.report.settings import StudySettings
from feedrate.results.settings import DECODE, WORKERS


def loaders_alone(settings: StudySettings, cells: Sequence[CellRow]) -> str:
    """How fast each way of loading makes batches, where a study compares several; else empty.

    `cells` are those of one device; compared are those with as many workers as the baseline.
    """
    factors = {factor.sets: name for name, factor in settings.factors.items()}
    if DECODE not in factors:
        return ""
    workers = factors.get(WORKERS)
    rates: dict[str, float] = {}
    base: float | None = None
    for cell in cells:
        rate, count = cell.loader_samples_per_s, cell.levels.get(workers or "")
        if rate and count == settings.baseline.get(workers or ""):
            others = {name: v for name, v in cell.levels.items() if name != workers}
            rates[text.levels_text(told(settings, others)) or "the baseline"] = rate
            base = rate if cell.levels == settings.baseline else base
    if len(rates) < 2 or base is None:
        return ""
    said = text.listed(
        f"{name} {text.number(rate, 3)} samples/s ({text.TIMES}{text.number(rate / base, 3)})"
        for name, rate in rates.items()
    )
    models = [cell.model_samples_per_s for cell in cells if cell.model_samples_per_s]
    model = f" The model alone takes {text.number(median(models), 3)}." if models else ""
    alike = f", with {workers} = {settings.baseline[workers]}" if workers else ""
    return f"No model beside it{alike}: {said}.{model}"
