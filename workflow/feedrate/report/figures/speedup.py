"""Speed-up over the baseline of the same device, as a matrix of coloured numbers."""

import textwrap
from typing import Any

from matplotlib.colors import LinearSegmentedColormap, TwoSlopeNorm
from matplotlib.patches import Rectangle

from feedrate.config.values import level_text
from feedrate.report import text
from feedrate.report.context import PageSettings
from feedrate.report.figures import _canvas as canvas
from feedrate.report.lines import Speedup, baseline_speedups, unsupported_note
from feedrate.report.rows import Inputs

KINDS = {"speedup": 140}

COLORS = LinearSegmentedColormap.from_list("speedup", [canvas.ORANGE, "#ffffff", canvas.SKY])
"""Orange is slower, blue is faster; readers with any colour vision can distinguish them."""

TOO_SMALL = 5.0
"""Font size in points; below it a field shows only its colour, and the table has the numbers."""


def speedup(settings: PageSettings, inputs: Inputs) -> canvas.Figure:
    """Rows are devices with their other settings, columns are the levels of the factor."""
    lines = baseline_speedups(settings, inputs.cells(settings.study), settings.factor)
    values = [ratio.value for line in lines.values() for ratio in line if ratio.value is not None]
    if not values:
        return canvas.statement("No baseline has a valid result, so there is no speed-up.")
    levels = [level_text(level) for level in settings.factors[settings.factor].levels]
    figure, (axes,) = canvas.new(1.0 + 0.5 * len(lines))
    reach = max(0.1, *(abs(value - 1) for value in values))
    size = min(10.5, 70 / len(levels))
    norm = TwoSlopeNorm(1.0, 1 - reach, 1 + reach)
    for row, line in enumerate(lines.values()):
        for column, speedup in enumerate(line):
            look: dict[str, Any] = {"facecolor": "white", "hatch": "///"}
            if speedup.value:
                look = {"facecolor": COLORS(norm(speedup.value))}
            place = (column - 0.5, row - 0.5)
            axes.add_patch(Rectangle(place, 1, 1, edgecolor=canvas.LIGHT, **look))
            if size > TOO_SMALL:
                _words(axes, column, row, speedup, size)
    canvas.level_ticks(axes, levels)
    axes.set_yticks(range(len(lines)), [textwrap.fill(name, 28) for name in lines])
    axes.set_xlim(-0.5, len(levels) - 0.5)
    axes.set_ylim(len(lines) - 0.5, -0.5)
    axes.tick_params(length=0)
    axes.grid(visible=False)
    axes.spines[:].set_visible(False)
    axes.set_xlabel(settings.factor_label(settings.factor))
    canvas.note(figure, [unsupported_note(settings, device) for device in settings.measured])
    return figure


def _words(axes: canvas.Axes, column: int, row: int, speedup: Speedup, size: float) -> None:
    """The number in a field with its interval below, or the reason why there is none."""
    small = text.ratio_interval(speedup.low, speedup.high) if size > 9 else ""
    axes.text(
        column,
        row - (0.1 if small else 0),
        text.ratio(speedup.value) if speedup.value else textwrap.fill(speedup.reason, 12),
        ha="center",
        va="center",
        fontsize=size if speedup.value else 0.85 * size,
        bbox=None if speedup.value else canvas.PAPER,
    )
    axes.text(column, row + 0.26, small, ha="center", va="center", fontsize=7.5)
