"""The tables of the first screen, one for each thing that a study may ask."""

from functools import partial
from typing import Any, NamedTuple

from feedrate.config.values import level_text
from feedrate.config.workflow import GeneratedExamples, LocalExamples
from feedrate.report import text
from feedrate.report.study import MOST, CellOf, CellRow, StudyResults, varying_factors, without
from feedrate.report.table import RATE, Column, Field, Table, by_device, change, rate

# Speed


def settings(study: StudyResults) -> list[Any]:
    """The settings of each device on the first screen, also where scores are asked and missing."""
    if study.asks not in ("speed", "learning") or (study.asks == "learning" and study.scores):
        return []
    return by_device(study, (c for device in study.devices for c in study.on_first_screen(device)))


def _settings_columns(study: StudyResults) -> list[Column]:
    def against(cell: CellRow) -> str:
        return "the baseline" if study.baseline_cell(cell) is cell else change(cell)

    return [
        _short(study, [cell for d in study.devices for cell in study.on_first_screen(d)]),
        RATE,
        Column("Against the baseline", against),
        Column("Still to gain", still_to_gain, optional=True),
        Column("Limit", lambda cell: cell.limit or text.DASH, optional=True),
    ]


def still_to_gain(cell: CellRow) -> str:
    """What a loader that never lets the device wait would add: `1 to 11%`, `5%`."""
    if cell.gain_low is None or cell.gain_high is None:
        return text.DASH
    low, high = text.percent(cell.gain_low), text.percent(cell.gain_high)
    return f"{low}%" if low == high else f"{low} to {high}%"


def _short(study: StudyResults, cells: list[CellRow]) -> Column:
    """The heading of a cell's row: the levels in which `cells` differ, and a mark on the cell to
    use."""
    names = varying_factors(cells) or [study.along]

    def heading(cell: CellRow) -> Field:
        words = text.values_text({name: cell.levels[name] for name in names})
        return Field(words, ["use this"] if cell.use else [], [cell])

    return Column(", ".join(map(study.factor_label, names)), heading)


# Latency


def latencies(study: StudyResults) -> list[Any]:
    """For each level along the first screen: the baseline, and the setting with least latency."""
    base = study.study.baseline
    fixed = without({name: base[name] for name in study.study.within}, study.along)
    timed = [c for c in study.tried if c.step_time_median_s is not None]
    alike = [c for c in timed if fixed.items() <= c.levels.items()]
    cells: list[CellRow] = []
    if study.asks == "latency":
        groups = text.grouped(alike, lambda cell: (cell.device, cell.levels[study.along]))
        for (device, level), group in groups.items():
            best = min(group, key=lambda cell: cell.step_time_median_s)
            usual = study.cell(device, {**base, study.along: level})
            cells += [cell for cell in group if cell in (usual, best)]
    return by_device(study, cells)


def _latency_columns(study: StudyResults) -> list[Column]:
    return [
        _short(study, [row for row in latencies(study) if isinstance(row, CellRow)]),
        Column("Latency, median", "step_time_median_s", text.seconds),
        Column("95th percentile", "step_time_p95_s", text.seconds),
        Column("99th percentile", "step_time_p99_s", text.seconds, optional=True),
        RATE,
        Column("Against the baseline", change, optional=True),
    ]


# The largest level that fits


class Reach(NamedTuple):
    """How far a line of cells reaches."""

    device: str
    others: dict[str, Any]
    place: int
    """Of the largest level that fits; -1: none."""
    largest: CellRow | None
    fastest: CellRow | None
    out_of_memory: CellRow | None


def reaches(study: StudyResults) -> list[Any]:
    """How far each line along the first screen reaches; of more than `MOST` lines on a device,
    those that reach furthest at each level of the factors in `within`."""
    if study.asks != "largest":
        return []
    order = study.study.factors[study.along].texts
    found = []
    for line in study.lines(study.along):
        largest = line.ok[-1] if line.ok else None
        place = order.index(level_text(largest.levels[study.along])) if largest else -1
        fastest = max(line.ok, key=lambda cell: cell.samples_per_s, default=None)
        full = next((cell for cell in line.cells if cell.status == "out_of_memory"), None)
        found.append(Reach(line.device, line.others, place, largest, fastest, full))
    if len(found) > MOST * len(study.devices):
        names = [name for name in study.study.within if name != study.along]
        groups = text.grouped(found, lambda r: (r.device, *(r.others[name] for name in names)))
        found = [max(group, key=lambda reach: reach.place) for group in groups.values()]
    return by_device(study, found)


def _reach_columns(study: StudyResults) -> list[Column]:
    label = study.factor_label(study.along)
    others = [study.factor_label(name) for name in study.study.factors if name != study.along]

    def level(cell: CellRow | None) -> Field:
        return Field(level_text(cell.levels[study.along]), of=[cell]) if cell else Field(text.DASH)

    return [
        Column(", ".join(others) or "Setting", lambda r: text.values_text(r.others) or text.DASH),
        Column(f"Largest {label} that fits", "largest", level),
        Column("Samples/s", "largest", lambda cell: rate(cell) if cell else text.DASH),
        Column("Peak memory (GiB)", lambda r: r.largest and r.largest.peak_memory_gib, text.number),
        Column(f"Fastest {label}", "fastest", level),
        Column("Samples/s", "fastest", lambda cell: rate(cell) if cell else text.DASH),
        Column("Out of memory from", "out_of_memory", level),
    ]


# Scores

METRICS = {
    "matching_accuracy": "Right caption of five",
    "image_to_text_recall_at_1": "Nearest caption is the image's",
    "text_to_image_recall_at_1": "Nearest image is the caption's",
    "accuracy": "Accuracy",
}
"""Metrics of a split in the order of the table, with their names."""
WINOGROUND = ("text_score", "image_score", "group_score")


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
    config = study.plan.project.config
    copy = config.winoground_sets.get(config.winoground or "")
    kinds = {GeneratedExamples: "Drawn stand-in for Winoground", LocalExamples: "Own Winoground"}
    for metric in WINOGROUND:
        kind = kinds.get(type(copy), "Winoground")
        names["winoground", metric] = f"{kind}, {metric.removesuffix('_score')}"

    def column(key: tuple[str, str]) -> Column:
        chance = known[key].chance
        guess = f" (chance {text.share(chance)})" if chance is not None else ""
        return Column(names[key] + guess, partial(_score, study, key))

    heading = Column("Setting", lambda row: text.values_text(row.levels))
    return [heading, *(column(key) for key in names if key in known)]


def _score(study: StudyResults, key: tuple[str, str], cell: CellOf) -> Field:
    """The score after training; below it the one before, and the interval of the gain."""
    score = study.score(cell, *key)
    if score is None:
        return Field(text.DASH)
    notes = [f"before {text.share(score.before)}", f"{score.n} answers"]
    if score.gain_low is not None and score.gain_high is not None:
        notes.insert(1, f"{100 * score.gain_low:+.0f} to {100 * score.gain_high:+.0f} points")
    return Field(text.share(score.after), notes, study.runs_of(cell))


TABLES = (
    Table("settings", "Settings", "answer", 10, settings, _settings_columns),
    Table("latency", "Latency", "answer", 11, latencies, _latency_columns),
    Table("largest", "The largest that fits", "answer", 12, reaches, _reach_columns),
    Table("scores", "Scores after training", "answer", 13, scored, _score_columns),
)
