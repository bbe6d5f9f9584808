"""The speed-up matrix: over each device's own baseline, and of device over device."""

from collections.abc import Sequence

from feedrate.config.values import level_text
from feedrate.report import text
from feedrate.report.gains import Gain, GainLine, device_lines, gain_lines
from feedrate.report.grid import factor_label, main_factor
from feedrate.report.markup import Markup, group_row, join, row, small, table, word
from feedrate.report.rows import Inputs
from feedrate.report.settings import TableSettings


def render(settings: TableSettings, inputs: Inputs) -> Markup:
    """Columns are the levels of the table's factor."""
    factor = main_factor(settings, settings.table.factor)
    cells = inputs.cells(settings.study)
    label = factor_label(settings, factor)
    levels = [level_text(level) for level in settings.factors[factor].levels]
    heads = ["", *(f"{label} = {level}" for level in levels)]
    base = text.levels_text(settings.baseline)
    rows = [
        group_row(f"Over the same device at its baseline ({base})", len(heads)),
        *_rows(gain_lines(settings, cells, factor)),
    ]
    across = device_lines(settings, cells, factor)
    if across:
        rows += [group_row("Device over device at equal settings", len(heads)), *_rows(across)]
    return table(heads, rows)


def _rows(lines: Sequence[GainLine]) -> list[Markup]:
    return [row([line.name, *(_field(gain) for gain in line.gains)]) for line in lines]


def _field(gain: Gain) -> Markup:
    if gain.value is None:
        return word(gain.word)
    return join(text.ratio(gain.value), small(text.ratio_interval(gain.low, gain.high)))
