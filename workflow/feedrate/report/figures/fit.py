"""The error of the loader model's prediction for each number, published and measured."""

from typing import Any

from feedrate.report import text
from feedrate.report.figures import _canvas as canvas
from feedrate.report.lines import short_names
from feedrate.report.params import PageSettings
from feedrate.report.rows import FitRow, Inputs

NEEDS = ("fit",)
ORDER = 180

GOOD = 0.05
"""Errors within this share are shaded as well explained."""


def render(settings: PageSettings, inputs: Inputs) -> canvas.Figure:
    """One line for each cell: the relative error, with the number and its prediction."""
    rows = inputs.rows("fit.csv", FitRow, settings.study)
    rows = [row for row in rows if row.predicted and row.samples_per_s]
    if not rows:
        return canvas.statement(
            "The model needs one number without workers and one with workers; no device has both."
        )
    rows.sort(key=lambda row: not row.ours)
    figure, (axes,) = canvas.new(1.3 + canvas.BAR_IN * len(rows))
    reach = max(1.6 * GOOD, *(1.25 * abs(row.residual) for row in rows))
    axes.set_xlim(-100 * reach, 100 * reach)
    axes.axvspan(-100 * GOOD, 100 * GOOD, color=canvas.LIGHT, alpha=0.5, linewidth=0)
    axes.axvline(0, color=canvas.GREY, linewidth=1)
    margin: dict[str, Any] = {"xycoords": ("axes fraction", "data"), "annotation_clip": False}
    for place, row in enumerate(rows):
        color, marker = (canvas.BLUE, "o") if row.ours else (canvas.RED, "s")
        error = 100 * row.residual
        axes.plot([0, error], [place, place], color=color, linewidth=2)
        axes.plot(error, place, marker, color=color, markersize=7)
        words = f"{text.number(row.samples_per_s)} → {text.number(row.predicted)}"
        canvas.label(axes, words, (1, place), **margin)
    short = short_names(rows)
    names = [f"{settings.label(row.device)}, {row.origin}\n{short[row.cell]}" for row in rows]
    canvas.row_axis(axes, names, fontsize=8.5)
    axes.grid(visible=False)
    axes.set_xlabel("error of the prediction (%), shaded: within 5%")
    head: dict[str, Any] = {"xycoords": "axes fraction", "va": "bottom", "color": canvas.GREY}
    canvas.label(axes, "samples/s:\nnumber → prediction", (1, 1), (6, 2), **head)
    return figure
