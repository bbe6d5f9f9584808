"""How far the loader model's prediction lies from each number, published and ours."""

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from feedrate.report import text
from feedrate.report.figures import canvas
from feedrate.report.grid import short_names
from feedrate.report.rows import FitRow, Inputs
from feedrate.report.settings import FigureSettings

ROW_IN = 0.42
GOOD = 0.05
"""Residuals within this share are shaded as well explained."""


def draw(settings: FigureSettings, inputs: Inputs) -> Figure:
    """One line a cell: the residual in per cent, with the number and its prediction beside it."""
    rows = inputs.rows("fit.csv", FitRow, settings.study)
    rows = [row for row in rows if row.predicted and row.samples_per_s]
    if not rows:
        return canvas.statement(
            "The model needs a number without workers and one with; no device has both."
        )
    rows.sort(key=lambda row: not _here(row))
    figure, (axes,) = canvas.new(1.3 + ROW_IN * len(rows))
    reach = max(1.6 * GOOD, *(1.25 * abs(_error(row)) for row in rows))
    axes.set_xlim(-100 * reach, 100 * reach)
    axes.axvspan(-100 * GOOD, 100 * GOOD, color=canvas.LIGHT, alpha=0.5, linewidth=0)
    axes.axvline(0, color=canvas.GREY, linewidth=1)
    for place, row in enumerate(rows):
        _row(axes, place, row)
    _frame(axes, settings, rows)
    return figure


def _row(axes: Axes, place: int, row: FitRow) -> None:
    color, marker = (canvas.BLUE, "o") if _here(row) else (canvas.RED, "s")
    error = 100 * _error(row)
    axes.plot([0, error], [place, place], color=color, linewidth=2)
    axes.plot(error, place, marker, color=color, markersize=7)
    words = f"{text.number(row.samples_per_s)} → {text.number(row.predicted)}"
    axes.annotate(
        words,
        (1, place),
        xycoords=("axes fraction", "data"),
        xytext=(6, 0),
        textcoords="offset points",
        va="center",
        fontsize=8.5,
        annotation_clip=False,
    )


def _frame(axes: Axes, settings: FigureSettings, rows: Sequence[FitRow]) -> None:
    short = short_names(rows)
    names = [f"{settings.label(r.device)}, {r.origin}\n{short[r.cell]}" for r in rows]
    axes.set_yticks(range(len(rows)), names, fontsize=8.5)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="y", visible=False)
    axes.set_xlabel("prediction against the number (%), shaded: within 5%")
    axes.annotate(
        "samples/s:\nnumber → prediction",
        (1, 1),
        xycoords="axes fraction",
        xytext=(6, 2),
        textcoords="offset points",
        va="bottom",
        fontsize=8.5,
        color=canvas.GREY,
    )


def _error(row: FitRow) -> float:
    return (row.predicted or 0.0) / (row.samples_per_s or 1.0) - 1


def _here(row: FitRow) -> bool:
    return row.origin == "here"
