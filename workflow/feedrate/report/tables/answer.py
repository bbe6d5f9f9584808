"""The tables of the first screen, one for each thing that a study may ask."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from feedrate.config.values import level_text
from feedrate.report import text
from feedrate.report.html import sentence
from feedrate.report.rows import CellRow, Line, varying_factors, without
from feedrate.report.scores import NAMES, Scored, scored
from feedrate.report.sentences import tail
from feedrate.report.study import StudyResults
from feedrate.report.table import RATE, Column, Field, Table, by_device, gain, rate, setting
from feedrate.results.record import Score

# Speed


def settings(study: StudyResults) -> list[Any]:
    """The settings of each device on the first screen, also where scores are asked and missing."""
    if study.asks == "speed" or (study.asks == "learning" and not scored(study)):
        return by_device(study, _on_first_screen(study))
    return []


def _on_first_screen(study: StudyResults) -> list[CellRow]:
    return [cell for device in study.devices for cell in study.on_first_screen(device)]


def _settings_columns(study: StudyResults) -> list[Column]:
    cells = _on_first_screen(study)
    compared = [
        gain(study),
        Column("Still to gain", _still_to_gain, optional=True),
    ]
    first = [setting(study, cells)]
    if any(cell.limit for cell in cells):
        first.append(Column("Limit", partial(_limit, cells)))
    if any(map(study.by_share, study.devices)):
        return [*first, Column("Of the model alone", _share), *compared, RATE]
    return [*first, RATE, *compared]


def _share(cell: CellRow) -> str:
    return text.share(cell.share.value) if cell.share and cell.samples_per_s else text.DASH


def _limit(cells: Sequence[CellRow], cell: CellRow) -> Field:
    """The limit of a cell; below it how much later than others its first step ends, if that is a
    second or more: a short run feels it, and the rate does not show it."""
    starts_s = [c.first_step_s for c in cells if c.first_step_s and c.device == cell.device]
    later_s = (cell.first_step_s or 0.0) - min(starts_s, default=0.0)
    note = f"starts {text.seconds(later_s)} later" if starts_s and later_s >= 1 else ""
    return Field(cell.limit or text.DASH, [note])


def _still_to_gain(cell: CellRow) -> str:
    """What a loader that never lets the device wait would add: `1 to 11%`, `5%`."""
    if cell.gain_low is None or cell.gain_high is None:
        return text.DASH
    return text.bounds(cell.gain_low, cell.gain_high)


# Latency


def latencies(study: StudyResults) -> list[Any]:
    """For each level along the first screen: the baseline, and the setting with least latency."""
    return by_device(study, _latencies(study) if study.asks == "latency" else [])


def _latencies(study: StudyResults) -> list[CellRow]:
    base, found = study.study.baseline, list[CellRow]()
    fixed = without({name: base[name] for name in study.study.within}, study.along)
    timed = [c for c in study.tried if c.step_time_median_s and fixed.items() <= c.levels.items()]
    groups = text.grouped(timed, lambda cell: (cell.device, cell.levels[study.along]))
    for (device, level), group in groups.items():
        best = min(group, key=lambda cell: cell.step_time_median_s)
        usual = study.cell(device, {**base, study.along: level})
        found += [cell for cell in group if cell in (usual, best)]
    return found


def _latency_columns(study: StudyResults) -> list[Column]:
    return [
        setting(study, _latencies(study)),
        Column("Latency, median", "step_time_median_s", text.seconds),
        Column("Slow passes", partial(_slow, study), optional=True),
        RATE,
        gain(study),
    ]


def _slow(study: StudyResults, cell: CellRow) -> Field:
    slow_s, what = tail(study, cell)
    return Field(text.seconds(slow_s), [what if slow_s else ""])


# The largest level that fits


def reaches(study: StudyResults) -> list[Any]:
    """The lines of each device along the first screen."""
    return by_device(study, _reaches(study) if study.asks == "largest" else [])


def _reaches(study: StudyResults) -> list[Line]:
    return [line for device in study.devices for line in study.lines_of_answer(device)]


def _reach_columns(study: StudyResults) -> list[Column]:
    label = study.factor_label(study.along)
    others = study.others_varied

    def level(cell: CellRow | None) -> Field:
        return Field(level_text(cell.levels[study.along]), of=[cell]) if cell else Field(text.DASH)

    def memory(cell: CellRow | None) -> str:
        known = cell and cell.peak_memory_gib
        return f"{text.number(known)} GiB" if known else text.DASH

    def faster(line: Line) -> Field:
        """The fastest level with its rate, if the largest one is not the fastest."""
        cell = line.fastest
        if cell is None or cell is line.largest:
            return Field(text.DASH)
        return level(cell)._replace(notes=[f"{text.number(cell.samples_per_s)} samples/s"])

    return [
        Column(
            ", ".join(map(study.factor_label, others)),
            lambda line: text.values_text({name: line.others[name] for name in others}),
        ),
        Column(f"Largest {label} that fits", "largest", level),
        Column("Its memory", "largest", memory),
        Column("Its samples/s", "largest", lambda cell: rate(cell) if cell else text.DASH),
        Column(f"Fastest {label} of the row", faster, optional=True),
        Column("Out of memory", "too_large", level, optional=True),
    ]


# Scores


class ScoreLine(NamedTuple):
    """The scores of a cell by metric, or those of guesses."""

    heading: Field
    scores: dict[str, Field]
    cell: CellRow | None = None


def scores(study: StudyResults) -> list[Any]:
    """The scores of a study about learning: of guesses, then of each cell."""
    cells = scored(study) if study.asks == "learning" else []
    lines: list[Any] = []
    for device, of_device in text.grouped(cells, lambda each: each.cell.device).items():
        lines += [study.label(device)] if len(study.devices) > 1 else []
        lines += [_score_line(study, each, cells) for each in of_device]
    guesses = {
        name: Field(text.share(score.chance), [f"{text.integer(score.n)} answers"])
        for each in cells
        for name, score in each.scores.items()
    }
    return [*lines, ScoreLine(Field("By guessing"), guesses)] if cells else []


def _score_line(study: StudyResults, each: Scored, cells: Sequence[Scored]) -> ScoreLine:
    """A cell's scores; below each the one before, and the interval of the gain."""
    fields = {}
    for name, score in each.scores.items():
        before = f"before {text.share(score.before)}" if score.before is not None else ""
        fields[name] = Field(text.share(score.after), [before, _gain(score)])
    name = study.name_among(each.cell, [other.cell for other in cells])
    heading = Field("After training" if len(cells) == 1 else name, of=study.runs_of(each.cell))
    return ScoreLine(heading, fields, study.cell(each.cell.device, each.cell.levels))


def _gain(score: Score) -> str:
    if score.gain_low is None or score.gain_high is None:
        return ""
    return text.bounds(score.gain_low, score.gain_high).removesuffix("%")


def _score_columns(study: StudyResults) -> list[Column]:
    cells = [each.cell for each in scored(study)]
    factors = varying_factors(cells) if len(cells) > 1 else []

    def of(metric: str) -> Callable[[ScoreLine], Field]:
        return lambda line: line.scores.get(metric, Field(text.DASH))

    return [
        Column(", ".join(map(study.factor_label, factors)), "heading"),
        *(Column(head, of(metric), optional=True) for metric, head in NAMES.items()),
        RATE._replace(value=lambda line: rate(line.cell) if line.cell else text.DASH),
    ]


def _note(study: StudyResults) -> str:
    """What the share of the model alone is, and which settings are left out."""
    shown, tried = len(_on_first_screen(study)), len(study.tried)
    by_share = [*filter(study.by_share, study.devices)]
    all_so = len(by_share) == len(study.devices)
    return sentence(
        "settings",
        by_share=bool(by_share),
        of="" if all_so else text.listed(map(study.label, by_share)),
        several_ranks=any((cell.world_size or 1) > 1 for cell in study.tried),
        shown=shown,
        tried=tried,
        smallest=study.study.thresholds.smallest_effect,
    )


BELOW = "Below a score after training: the score before, and the gain in points."
TABLES = (
    Table("settings", "Settings", "answer", 10, settings, _settings_columns, _note),
    Table("latency", "Latency", "answer", 11, latencies, _latency_columns),
    Table("largest", "The largest that fits", "answer", 12, reaches, _reach_columns),
    Table("scores", "Scores after training", "answer", 13, scores, _score_columns, BELOW),
)
