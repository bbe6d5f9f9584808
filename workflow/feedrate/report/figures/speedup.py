"""Speed-up over the baseline of the same device, as a matrix of colours with numbers on them."""

import math
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, TwoSlopeNorm
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from feedrate.config.values import level_text
from feedrate.report import text
from feedrate.report.figures import canvas
from feedrate.report.gains import Gain, GainLine, gain_lines
from feedrate.report.grid import factor_label, lacking_text, main_factor
from feedrate.report.rows import Inputs
from feedrate.report.settings import FigureSettings

COLORS = LinearSegmentedColormap.from_list("gain", [canvas.ORANGE, "#ffffff", canvas.SKY])
"""Orange is slower, blue is faster: told apart with any colour vision, and numbers stand on it."""

TOO_SMALL = 5.0
"""Points; below this a field has its colour only, and the table beside it the numbers."""


def draw(settings: FigureSettings, inputs: Inputs) -> Figure:
    """Rows are devices (with other settings where these differ), columns the factor's levels."""
    factor = main_factor(settings, settings.figure.x)
    lines = gain_lines(settings, inputs.cells(settings.study), factor)
    if not any(gain.value is not None for line in lines for gain in line.gains):
        return canvas.statement("No two cells of a device have numbers, so there is no speed-up.")
    figure, (axes,) = canvas.new(1.0 + 0.5 * len(lines))
    values = [gain.value for line in lines for gain in line.gains if gain.value is not None]
    reach = max(0.1, *(abs(value - 1) for value in values))
    size = min(10.5, 70 / len(lines[0].gains))
    norm = TwoSlopeNorm(1.0, 1 - reach, 1 + reach)
    for row, line in enumerate(lines):
        for column, gain in enumerate(line.gains):
            color = COLORS(norm(gain.value)) if gain.value else "white"
            _field(axes, column, row, gain, color)
            if size > TOO_SMALL:
                _words(axes, column, row, gain, size)
    _frame(axes, settings, factor, lines)
    canvas.note(figure, [lacking_text(settings, device) for device in settings.measured])
    return figure


def _field(axes: Axes, column: int, row: int, gain: Gain, color: object) -> None:
    hatch = None if gain.value else "///"
    axes.add_patch(
        Rectangle(
            (column - 0.5, row - 0.5), 1, 1, facecolor=color, edgecolor=canvas.LIGHT, hatch=hatch
        )
    )


def _words(axes: Axes, column: int, row: int, gain: Gain, size: float) -> None:
    """The number on a field with its interval below it, or why there is none."""
    small = text.ratio_interval(gain.low, gain.high) if size > 9 else ""
    axes.text(
        column,
        row - (0.1 if small else 0),
        text.ratio(gain.value) if gain.value else canvas.wrap(gain.word, 12),
        ha="center",
        va="center",
        fontsize=size if gain.value else 0.85 * size,
        bbox=None if gain.value else canvas.PAPER,
    )
    axes.text(column, row + 0.26, small, ha="center", va="center", fontsize=7.5)


def _frame(axes: Axes, settings: FigureSettings, factor: str, lines: Sequence[GainLine]) -> None:
    levels = [level_text(level) for level in settings.factors[factor].levels]
    every = math.ceil(len(levels) / canvas.FEW)
    axes.set_xticks(range(0, len(levels), every), levels[::every])
    axes.set_yticks(range(len(lines)), [canvas.wrap(line.name, 28) for line in lines])
    axes.set_xlim(-0.5, len(levels) - 0.5)
    axes.set_ylim(len(lines) - 0.5, -0.5)
    axes.tick_params(length=0)
    axes.grid(visible=False)
    axes.spines[:].set_visible(False)
    axes.set_xlabel(factor_label(settings, factor))
