"""The tables of the first screen, one for each thing that a study may ask."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from feedrate.config.values import level_text
from feedrate.config.workflow import GeneratedExamples, HubExamples
from feedrate.report import text
from feedrate.report.study import (
    MOST,
    CellRow,
    Line,
    ScoreRow,
    StudyResults,
    varying_factors,
    without,
)
from feedrate.report.table import CHANGE, RATE, Column, Field, Table, Wide, by_device, change, rate

Rows = Callable[[StudyResults], Sequence[Any]]


def asked(asks: str, rows: Rows) -> Rows:
    """The rows of studies that ask this; of others none."""
    return lambda study: rows(study) if study.asks == asks else []


# Speed


class Setting(NamedTuple):
    """A cell beside the others of its device."""

    name: str
    cell: CellRow
    use: bool


def settings(study: StudyResults) -> list[Any]:
    """The settings of each device on the first screen."""
    return by_device(study, partial(_settings, study))


def _settings(study: StudyResults, device: str) -> list[Any]:
    cells = study.on_first_screen(device)
    rows: list[Any] = []
    for cell in cells:
        name = study.short(cell, cells)
        if cell.samples_per_s is None and cell.provisional_samples_per_s is None:
            why = Field(text.state(cell.status, cell.cause), [cell.cause], word=True)
            rows.append(Wide(Field(name, of=[cell]), why))
        else:
            rows.append(Setting(name, cell, cell.use))
    return rows


def _name(row: Setting) -> Field:
    return Field(row.name, ["use this"] if row.use else [], [row.cell])


def _rate(row: Setting) -> Field:
    if row.cell.samples_per_s is not None:
        return rate(row.cell)
    provisional = text.number(row.cell.provisional_samples_per_s)
    return Field(
        provisional, ["provisional: other programs used the cores"], [row.cell], provisional=True
    )


def still_to_gain(cell: CellRow) -> str:
    """What a loader that never lets the device wait would add: `1 to 11%`, `5%`."""
    if cell.gain_low is None or cell.gain_high is None:
        return text.DASH
    low, high = text.percent(cell.gain_low), text.percent(cell.gain_high)
    return f"{low}%" if low == high else f"{low} to {high}%"


def _settings_columns(study: StudyResults) -> list[Column]:
    shown = [study.on_first_screen(device) for device in study.devices]
    names = dict.fromkeys(name for cells in shown for name in varying_factors(cells))
    head = ", ".join(map(study.factor_label, names or [study.along]))

    def against(row: Setting) -> str:
        is_base = row.cell.levels == study.study.baseline_of(row.cell.levels)
        return "the baseline" if is_base else change(row.cell)

    return [
        Column(head, _name),
        Column("Samples/s", _rate),
        Column("Against the baseline", against),
        Column("Still to gain", lambda row: still_to_gain(row.cell), optional=True),
        Column("Limit", lambda row: row.cell.limit or text.DASH, optional=True),
    ]


# Latency


def latencies(study: StudyResults) -> list[Any]:
    """For each level along the first screen: the baseline, and the setting with least latency."""
    fixed = without({name: study.study.baseline[name] for name in study.study.within}, study.along)

    def rows(device: str) -> list[CellRow]:
        cells = [
            cell
            for cell in study.tried
            if cell.device == device
            and cell.step_time_median_s is not None
            and all(level_text(cell.levels[k]) == level_text(v) for k, v in fixed.items())
        ]
        found: list[CellRow] = []
        for group in text.grouped(cells, lambda cell: cell.levels[study.along]).values():
            best = min(group, key=lambda cell: cell.step_time_median_s)
            level = {study.along: best.levels[study.along]}
            base = study.cell(device, {**study.study.baseline, **level})
            found += [cell for cell in group if cell in (base, best)]
        return found

    return by_device(study, rows)


def _latency_columns(study: StudyResults) -> list[Column]:
    shown = [row for row in latencies(study) if isinstance(row, CellRow)]

    def name(cell: CellRow) -> Field:
        return Field(study.short(cell, shown), of=[cell])

    head = ", ".join(map(study.factor_label, varying_factors(shown) or [study.along]))
    return [
        Column(head, name),
        Column("Latency, median", "step_time_median_s", text.seconds),
        Column("95% below", "step_time_p95_s", text.seconds),
        Column("99% below", "step_time_p99_s", text.seconds, optional=True),
        RATE,
        CHANGE._replace(optional=True),
    ]


# The largest level that fits


class Reach(NamedTuple):
    """How far a line of cells reaches."""

    line: Line
    largest: CellRow | None
    fastest: CellRow | None
    out_of_memory: CellRow | None


def reaches(study: StudyResults) -> list[Any]:
    """How far each line along the first screen reaches; of more than `MOST` lines on a device,
    those that reach furthest at each level of the factors in `within`."""
    order = study.study.factors[study.along].texts

    def rank(reach: Reach) -> tuple[int, float]:
        if reach.largest is None:
            return -1, 0.0
        return order.index(
            level_text(reach.largest.levels[study.along])
        ), reach.largest.samples_per_s

    def rows(device: str) -> list[Reach]:
        found = [
            Reach(
                line,
                line.ok[-1] if line.ok else None,
                max(line.ok, key=lambda cell: cell.samples_per_s, default=None),
                next((cell for cell in line.cells if cell.status == "out_of_memory"), None),
            )
            for line in study.lines(study.along)
            if line.device == device
        ]
        if len(found) <= MOST:
            return found
        names = [name for name in study.study.within if name != study.along]
        groups = text.grouped(found, lambda r: tuple(r.line.others[name] for name in names))
        return [max(group, key=rank) for group in groups.values()]

    return by_device(study, rows)


def _reach_columns(study: StudyResults) -> list[Column]:
    label = study.factor_label(study.along)
    others = [study.factor_label(name) for name in study.study.factors if name != study.along]

    def level(cell: CellRow | None) -> Field:
        return Field(level_text(cell.levels[study.along]), of=[cell]) if cell else Field(text.DASH)

    def largest(reach: Reach) -> Field:
        return level(reach.largest) if reach.largest else Field("none", word=True)

    def value(name: str) -> Callable[[Reach], float | None]:
        return lambda reach: getattr(reach.largest, name) if reach.largest else None

    return [
        Column(", ".join(others) or label, lambda r: text.values_text(r.line.others) or text.DASH),
        Column(f"Largest {label} that fits", largest),
        Column("Samples/s", lambda r: rate(r.largest) if r.largest else text.DASH),
        Column("Peak memory", value("peak_memory_gib"), text.number, "GiB"),
        Column(f"Fastest {label}", lambda r: level(r.fastest)),
        Column("Samples/s", lambda r: rate(r.fastest) if r.fastest else text.DASH),
        Column("Out of memory from", lambda r: level(r.out_of_memory)),
    ]


# Scores

MATCHING = "matching_accuracy"
METRICS = {
    MATCHING: "Right caption of five",
    "image_to_text_recall_at_1": "Nearest caption is the image's",
    "text_to_image_recall_at_1": "Nearest image is the caption's",
    "accuracy": "Accuracy",
}
"""Metrics of a split in the order of the table, with their names."""
WINOGROUND = ("text_score", "image_score", "group_score")


def scored(study: StudyResults) -> list[Any]:
    """The cells that have scores."""

    def rows(device: str) -> list[ScoreRow]:
        mine = (row for row in study.scores if row.device == device)
        return [first for first, *_ in text.grouped(mine, lambda row: row.key).values()]

    return by_device(study, rows)


def _score_columns(study: StudyResults) -> list[Column]:
    """A column for each metric of the test split, or of validation where there is no test, and for
    those of Winoground; each names the score of a guess."""
    splits = {row.score.on for row in study.scores}
    on = "test" if "test" in splits else "validation"
    named = {(on, metric): name for metric, name in METRICS.items()}
    named |= {
        ("winoground", metric): f"{_winoground(study)}: {metric.removesuffix('_score')}"
        for metric in WINOGROUND
    }
    known = {(row.score.on, row.score.metric): row.score for row in study.scores}
    columns = [
        Column("Setting", lambda row: Field(text.values_text(row.levels), of=study.runs_of(row)))
    ]
    for key, name in named.items():
        if score := known.get(key):
            chance = f"chance {text.share(score.chance)}" if score.chance is not None else ""
            columns.append(Column(name, partial(_score, study, key), unit=chance))
    return columns


def _winoground(study: StudyResults) -> str:
    config = study.plan.project.config
    match config.winoground_sets.get(config.winoground or ""):
        case GeneratedExamples():
            return "Drawn stand-in for Winoground"
        case HubExamples():
            return "Winoground"
        case _:
            return "Local copy of Winoground"


def _score(study: StudyResults, key: tuple[str, str], cell: ScoreRow) -> Field:
    """The score after training; below it the one before, and the interval of the gain."""
    score = study.score(cell, *key)
    if score is None:
        return Field(text.DASH)
    notes = [f"before {text.share(score.before)}"]
    if score.gain_low is not None and score.gain_high is not None:
        notes.append(f"{100 * score.gain_low:+.0f} to {100 * score.gain_high:+.0f} points")
    notes.append(f"{score.n} answers")
    return Field(text.share(score.after), notes, study.runs_of(cell))


TABLES = (
    Table("settings", "Settings", "answer", 10, asked("speed", settings), _settings_columns),
    Table("latency", "Latency", "answer", 11, asked("latency", latencies), _latency_columns),
    Table(
        "largest", "The largest that fits", "answer", 12, asked("largest", reaches), _reach_columns
    ),
    Table(
        "scores", "Scores after training", "answer", 13, asked("learning", scored), _score_columns
    ),
)
