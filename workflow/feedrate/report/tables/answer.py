"""The tables of the first screen, one for each thing that a study may ask."""

from collections.abc import Sequence
from functools import partial
from typing import Any

from feedrate.config.values import level_text
from feedrate.report import text
from feedrate.report.rows import CellOf, CellRow, without
from feedrate.report.study import Line, StudyResults
from feedrate.report.table import RATE, Column, Field, Table, by_device, change, rate, setting
from feedrate.results.answers import LIVE_MODEL

# Speed


def settings(study: StudyResults) -> list[Any]:
    """The settings of each device on the first screen, also where scores are asked and missing."""
    if study.asks == "speed" or (study.asks == "learning" and not study.scores):
        return by_device(study, _on_first_screen(study))
    return []


def _on_first_screen(study: StudyResults) -> list[CellRow]:
    return [cell for device in study.devices for cell in study.on_first_screen(device)]


def _settings_columns(study: StudyResults) -> list[Column]:
    def against(cell: CellRow) -> str:
        return "the baseline" if study.baseline_cell(cell) is cell else change(cell)

    return [
        setting(study, _on_first_screen(study)),
        RATE,
        Column("Against the baseline", against),
        Column("Still to gain", _still_to_gain, optional=True),
        Column("Limit", partial(_limit, _on_first_screen(study)), optional=True),
    ]


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
        Column("95th percentile", "step_time_p95_s", text.seconds),
        Column("99th percentile", "step_time_p99_s", text.seconds, optional=True),
        RATE,
        Column("Against the baseline", change, optional=True),
    ]


# The largest level that fits


def reaches(study: StudyResults) -> list[Any]:
    """The lines of each device along the first screen."""
    devices = study.devices if study.asks == "largest" else []
    return by_device(study, (line for name in devices for line in study.lines_of_answer(name)))


def _reach_columns(study: StudyResults) -> list[Column]:
    label = study.factor_label(study.along)
    others = [study.factor_label(name) for name in study.study.factors if name != study.along]

    def level(cell: CellRow | None) -> Field:
        return Field(level_text(cell.levels[study.along]), of=[cell]) if cell else Field(text.DASH)

    def memory(line: Line) -> str:
        return text.number(line.largest.peak_memory_gib if line.largest else None)

    return [
        Column(", ".join(others), lambda line: text.values_text(line.others)),
        Column(f"Largest {label} that fits", "largest", level),
        Column("Samples/s", "largest", lambda cell: rate(cell) if cell else text.DASH),
        Column("Peak memory (GiB)", memory),
        Column(f"Fastest {label}", "fastest", level),
        Column("Samples/s", "fastest", lambda cell: rate(cell) if cell else text.DASH),
        Column("Out of memory from", "too_large", level),
    ]


# Scores

METRICS = {
    "matching_accuracy": "Right caption of five",
    "image_to_text_recall_at_1": "Nearest caption is the image's",
    "text_to_image_recall_at_1": "Nearest image is the caption's",
    "accuracy": "Accuracy",
}
"""Metrics of a split in the order of the table, with their names."""
WINOGROUND = ("text", "image", "group")


def scored(study: StudyResults) -> list[Any]:
    """The cells that have scores."""
    groups = text.grouped(study.scores if study.asks == "learning" else [], lambda row: row.key)
    return by_device(study, (first for first, *_ in groups.values()))


def _score_columns(study: StudyResults) -> list[Column]:
    """A column for each metric of the test split, or of validation where there is no test, and for
    those of Winoground; each names the score of a guess."""
    known = {(row.score.on, row.score.metric): row.score for row in study.scores}
    split = "test" if any(on == "test" for on, _ in known) else "validation"
    names = {(split, metric): name for metric, name in METRICS.items()}
    names |= {("winoground", f"{part}_score"): f"{study.winoground}, {part}" for part in WINOGROUND}
    columns = [Column("Setting", lambda row: text.values_text(row.levels))]
    for key, name in names.items():
        if score := known.get(key):
            chance = f" (chance {text.share(score.chance)})" if score.chance is not None else ""
            columns.append(Column(name + chance, partial(_score, study, key)))
    return columns


def _score(study: StudyResults, key: tuple[str, str], cell: CellOf) -> Field:
    """The score after training; below it the one before, and the interval of the gain."""
    score = study.score(cell, *key)
    if score is None:
        return Field(text.DASH)
    gain = ""
    if score.gain_low is not None and score.gain_high is not None:
        gain = f"{100 * score.gain_low:+.0f} to {100 * score.gain_high:+.0f} points"
    notes = [f"before {text.share(score.before)}", gain, f"{score.n} answers"]
    return Field(text.share(score.after), notes, study.runs_of(cell))


def _measure(study: StudyResults) -> str:
    """Why gains and rates may order settings differently; empty where gains are ratios of rates."""
    if not any(answer.measure == LIVE_MODEL for answer in study.answers):
        return ""
    return "A drift of the machine cancels in gains (blocks that alternate), not in rates."


TABLES = (
    Table("settings", "Settings", "answer", 10, settings, _settings_columns, _measure),
    Table("latency", "Latency", "answer", 11, latencies, _latency_columns),
    Table("largest", "The largest that fits", "answer", 12, reaches, _reach_columns),
    Table("scores", "Scores after training", "answer", 13, scored, _score_columns),
)
