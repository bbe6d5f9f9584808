"""Speed-up over the baseline of the same device, as a matrix of coloured numbers."""

from feedrate.config.values import level_text
from feedrate.report import chart, text
from feedrate.report.context import PageSettings
from feedrate.report.lines import Speedup, baseline_speedups, unsupported_note
from feedrate.report.rows import Inputs

KINDS = {"speedup": 140}


def speedup(settings: PageSettings, inputs: Inputs) -> chart.Picture:
    """Rows are devices with their other settings, columns are the levels of the factor."""
    lines = baseline_speedups(settings, inputs.cells(settings.study), settings.factor)
    panel = chart.Panel(
        names=[level_text(level) for level in settings.factors[settings.factor].levels],
        place_label=settings.factor_label(settings.factor),
        tiles={name: [_tile(one) for one in line] for name, line in lines.items()},
        height_in=1.0 + 0.5 * len(lines),
    )
    known = any(one.value is not None for line in lines.values() for one in line)
    return chart.Picture(
        [panel] if known else [],
        "No baseline has a valid result, so there is no speed-up.",
        [unsupported_note(settings, device) for device in settings.measured],
    )


def _tile(ratio: Speedup) -> chart.Tile:
    if not ratio.value:
        return chart.Tile(None, ratio.reason)
    return chart.Tile(
        ratio.value, text.ratio(ratio.value), text.ratio_interval(ratio.low, ratio.high)
    )
