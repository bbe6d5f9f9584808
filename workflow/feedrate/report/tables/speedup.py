"""Speed-ups over each device's own baseline, and of one device over another."""

from feedrate.config.values import level_text
from feedrate.report import text
from feedrate.report.context import PageSettings
from feedrate.report.lines import Speedup, Speedups, baseline_speedups, device_speedups
from feedrate.report.markup import Markup, group_row, noted, record_link, row, table, word
from feedrate.report.rows import Inputs

ORDER = 140


def render(settings: PageSettings, inputs: Inputs) -> Markup:
    """Columns are the levels of the table's factor."""
    factor = settings.factor
    cells = inputs.cells(settings.study)
    label = settings.factor_label(factor)
    levels = [level_text(level) for level in settings.factors[factor].levels]
    heads = [label, *levels]
    fixed = {k: at for k, at in settings.baseline.items() if k not in settings.within}
    base = text.levels_text(fixed)
    rows = [
        group_row(f"Relative to the same device's baseline ({base})", len(heads)),
        *_rows(baseline_speedups(settings, cells, factor)),
    ]
    across = device_speedups(settings, cells, factor)
    if across:
        rows += [group_row("One device relative to another with equal settings", len(heads))]
        rows += _rows(across)
    return table(heads, rows)


def _rows(lines: Speedups) -> list[Markup]:
    return [row(name, *map(_field, speedups)) for name, speedups in lines.items()]


def _field(speedup: Speedup) -> Markup:
    if speedup.value is None:
        return word(speedup.reason)
    interval = text.ratio_interval(speedup.low, speedup.high)
    return noted(record_link(text.ratio(speedup.value), *speedup.cells), interval)
