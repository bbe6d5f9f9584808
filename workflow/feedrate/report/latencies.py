"""What an inference study found for a device, in sentences made from its cells."""

from collections.abc import Sequence

from feedrate.config.base import level_text
from feedrate.report import text
from feedrate.report.grid import rest_text
from feedrate.report.rows import CellRow
from feedrate.report.settings import Shown


def quickest_and_busiest(shown: Shown, cells: Sequence[CellRow]) -> tuple[str, str]:
    """A headline of the baseline's first level, and a sentence for each level of the first factor.

    `cells` are one device's that ended well, at least one.
    """
    first = next(iter(shown.factors))
    groups: dict[str, list[CellRow]] = {}
    for cell in cells:
        groups.setdefault(level_text(cell.levels[first]), []).append(cell)
    said = {level: _sentence(shown, group, first) for level, group in groups.items()}
    base = level_text(shown.baseline[first])
    main = groups.get(base) or next(iter(groups.values()))
    quick_s = min(_latency_s(cell) for cell in main)
    rate = text.rate(max(cell.samples_per_s or 0.0 for cell in main))
    headline = f"an answer takes {text.seconds(quick_s)} at best, and {rate} are the most"
    headline += f" with {first} = {level_text(main[0].levels[first])}" * (len(groups) > 1)
    return headline, " ".join(f"{level}: {sentence}" for level, sentence in said.items())


def _sentence(shown: Shown, cells: Sequence[CellRow], first: str) -> str:
    quick = min(cells, key=_latency_s)
    busy = max(cells, key=lambda cell: cell.samples_per_s or 0.0)
    return (
        f"median latency {text.seconds(quick.step_time_median_s)} (99% within "
        f"{text.seconds(quick.step_time_p99_s)}) with {_settings(shown, quick, first)}; "
        f"{text.rate(busy.samples_per_s)} with {_settings(shown, busy, first)}."
    )


def _settings(shown: Shown, cell: CellRow, first: str) -> str:
    rest = {name: level for name, level in cell.levels.items() if name != first}
    return rest_text(shown, rest) or "the baseline's settings"


def _latency_s(cell: CellRow) -> float:
    return float("inf") if cell.step_time_median_s is None else cell.step_time_median_s
