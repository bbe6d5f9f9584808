"""The one picture: training throughput on each device, between its two ceilings, with verdicts."""

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from feedrate.config.values import level_text
from feedrate.report import text
from feedrate.report.figures import canvas
from feedrate.report.grid import (
    Line,
    Spot,
    factor_label,
    lacking_text,
    main_factor,
    main_line,
    measured_lines,
    recommended_cell,
    repeats,
    rest_text,
    state,
)
from feedrate.report.rows import CellRow, Inputs
from feedrate.report.settings import FigureSettings

Rates = dict[int, float]
"""Samples/s by the place of the level on the axis."""

TRAINED: dict[str, Any] = {"color": canvas.BLUE, "marker": "o", "linestyle": "solid"}
LOADER: dict[str, Any] = {"color": canvas.RED, "marker": "v", "linestyle": (0, (5, 2))}
MODEL: dict[str, Any] = {"color": canvas.GREEN, "marker": "s", "linestyle": (0, (1, 1.2))}


def draw(settings: FigureSettings, inputs: Inputs) -> Figure:
    """One panel a device."""
    factor = main_factor(settings, settings.figure.x)
    cells = inputs.cells(settings.study)
    runs = inputs.runs(settings.study)
    lines = measured_lines(settings, cells, factor)
    use = {device: recommended_cell(settings, cells, device) for device in settings.measured}
    chosen = {
        device: main_line([line for line in lines if line.device == device], use[device])
        for device in settings.measured
    }
    shown = [line for line in chosen.values() if line]
    if not shown:
        return canvas.statement("No cell ended well, so there is no throughput to draw.")
    figure, panels = canvas.new(0.5 + 3.7 * len(shown), len(shown))
    for axes, line in zip(panels, shown, strict=True):
        axes.set_xlabel(factor_label(settings, factor))
        axes.set_ylabel("samples/s")
        axes.set_title(canvas.wrap(_title(settings, line, use[line.device]), 60))
        _panel(axes, line, factor, use[line.device])
        for place, spot in enumerate(line.spots):
            canvas.dots(axes, place, repeats(runs, spot), canvas.BLACK)
    empty = [settings.label(device) for device, line in chosen.items() if not line]
    gone = f"No cell ended well on {text.listed(empty)}." if empty else ""
    canvas.note(figure, [gone, *(lacking_text(settings, line.device) for line in shown)])
    return figure


def _panel(axes: Axes, line: Line, factor: str, use: CellRow | None) -> None:
    loader = {i: r for i, s in enumerate(line.spots) if (r := _row(s, "loader_samples_per_s"))}
    model = {i: r for i, s in enumerate(line.spots) if (r := _row(s, "model_samples_per_s"))}
    best = max(spot.value for spot in line.spots if spot.value is not None)
    # Ceilings far above would press the line that matters flat: they leave through the top.
    seen = [rate for rates in (loader, model) for rate in rates.values() if rate < 3 * best]
    top = 1.25 * max([best, *seen])
    axes.set_ylim(0, top)
    few = len(line.spots) <= canvas.FEW // 2
    levels = [level_text(spot.levels[factor]) for spot in line.spots]
    said = [_said(line, spot) if few else "" for spot in line.spots]
    ticks = ["\n".join(filter(None, pair)) for pair in zip(levels, said, strict=True)]
    canvas.level_axis(axes, ticks)
    labels = [
        *_ceiling(axes, "loader alone", LOADER, loader, top),
        *_ceiling(axes, "model alone", MODEL, model, top),
        (line.last, "training", TRAINED["color"]),
    ]
    axes.plot(*canvas.path(line), linewidth=2.4, markersize=8, zorder=5, **TRAINED)
    for place, spot in enumerate(line.spots):
        crowd = [r for rates in (loader, model) if (r := rates.get(place))]
        _spot(axes, place, spot)
        if len(line.spots) <= canvas.FEW or (use and spot.row is use):
            _value(axes, place, spot, crowd)
        if use and spot.row is use:
            _mark(axes, place)
    canvas.end_labels(axes, len(line.spots) - 0.75, labels)


def _ceiling(
    axes: Axes, name: str, look: dict[str, Any], rates: Rates, top: float
) -> list[tuple[float, str, str]]:
    """Draw a ceiling; where it leaves the picture its value is written at the upper edge."""
    if not rates:
        return []
    axes.plot(list(rates), list(rates.values()), linewidth=1.6, markersize=6, zorder=3, **look)
    for place, rate in rates.items():
        if rate > top and len(rates) <= canvas.FEW:
            axes.annotate(
                f"↑ {text.number(rate, 3)}",
                (place, top),
                xytext=(0, -2),
                va="top",
                ha="center",
                textcoords="offset points",
                color=look["color"],
                fontsize=9,
                bbox=canvas.PAPER,
            )
    last = list(rates.values())[-1]
    return [(min(last, 0.97 * top), name, look["color"])]


def _spot(axes: Axes, place: int, spot: Spot) -> None:
    """A point's interval, or a cross."""
    if spot.broke:
        y = 0.03 * axes.get_ylim()[1]
        axes.plot(place, y, "x", color=canvas.BLACK, markersize=9, markeredgewidth=2)
    canvas.whiskers(axes, place, spot.low, spot.high, TRAINED["color"])


def _value(axes: Axes, place: int, spot: Spot, crowd: Sequence[float]) -> None:
    """The number at a point, above it unless a ceiling runs there."""
    if spot.value is None:
        return
    below = any(0 < rate - spot.value < 0.14 * axes.get_ylim()[1] for rate in crowd)
    axes.annotate(
        text.number(spot.value, 3),
        (place, spot.value),
        xytext=(0, -12 if below else 11),
        textcoords="offset points",
        ha="center",
        va="top" if below else "bottom",
        weight="bold",
        color=TRAINED["color"],
        bbox=canvas.PAPER,
        zorder=6,
    )


def _mark(axes: Axes, place: int) -> None:
    """The recommended setting: a shaded place, and the words."""
    axes.axvspan(place - 0.42, place + 0.42, color=canvas.BLUE, alpha=0.09, linewidth=0)
    axes.annotate(
        "use this",
        (place, 0),
        xytext=(0, 7),
        textcoords="offset points",
        ha="center",
        weight="bold",
        color=canvas.BLUE,
        zorder=6,
    )


def _said(line: Line, spot: Spot) -> str:
    """What stands below a level: its verdict and its wait, or why it has no number."""
    if spot.value is None or spot.row is None:
        return canvas.wrap(state(line, spot), 12)
    wait = spot.row.data_wait_share
    waits = f"waits {text.share(wait)}" if wait is not None else ""
    noisy = "noisy" if spot.row.noisy else ""
    return "\n".join(filter(None, (spot.row.verdict, waits, noisy)))


def _title(settings: FigureSettings, line: Line, use: CellRow | None) -> str:
    rest = rest_text(settings, line.rest)
    name = settings.label(line.device) + (f" ({rest})" if rest else "")
    if use is None:
        return name
    levels = {k: v for k, v in use.levels.items() if k not in line.rest}
    is_baseline = use.levels == settings.baseline
    gain = f", {text.ratio(use.speedup)} the baseline" if use.speedup and not is_baseline else ""
    return f"{name}: use {text.levels_text(levels)} ({text.rate(use.samples_per_s)}{gain})"


def _row(spot: Spot, column: str) -> float | None:
    return getattr(spot.row, column) if spot.row else None
