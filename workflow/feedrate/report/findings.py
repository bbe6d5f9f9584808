"""What the numbers say, in sentences: every one is made from result rows."""

from collections.abc import Sequence
from dataclasses import dataclass

from feedrate.config.values import level_text
from feedrate.report import qualities, sentences, text
from feedrate.report.gains import baseline_for, elsewhere, ran_out, reached
from feedrate.report.grid import factor_label, recommended_cell, told, unsupported_groups
from feedrate.report.rows import CellRow, ClaimRow, FitRow, QualityRow
from feedrate.report.sentences import beside_published, loaders_alone, quickest_and_busiest
from feedrate.report.settings import StudySettings
from feedrate.results.settings import WORKERS


@dataclass(frozen=True)
class Answer:
    """The answer for one device: a headline, and the numbers behind it."""

    headline: str
    detail: str
    found: bool


@dataclass(frozen=True)
class Point:
    """A finding: what it is about, and the sentence."""

    lead: str
    said: str


_MEANING = {
    "input-bound": "It is input-bound there: loading holds it back.",
    "compute-bound": "It is compute-bound there: faster loading would gain little.",
    "memory-pressed": "Its memory is nearly full there.",
    "communication-bound": "It is communication-bound there: the ranks wait for each other.",
}
"""What a verdict means for who uses the setting."""


def answer(
    settings: StudySettings,
    cells: Sequence[CellRow],
    device: str,
    scores: Sequence[QualityRow] = (),
) -> Answer:
    """Which setting to use on a device, and what it gains; in a study of quality, what training
    adds."""
    label = settings.label(device)
    if climbed := _climbed(settings):
        headline, detail = reached(settings, cells, climbed, device)
        return Answer(f"{label}: {headline}", detail, bool(detail))
    mine = [c for c in cells if c.device == device and c.status != "unsupported"]
    good = [c for c in mine if c.status == "ok"]
    asked = _asks_for_quality(settings)
    gained = qualities.headline(scores, device, settings.baseline) if asked else ""
    if gained:
        return Answer(f"{label}: {gained}.", _rates(settings, good), True)
    best = _recommended(settings, cells, device)
    if best is None:
        if good and settings.task == "inference":
            headline, detail = quickest_and_busiest(settings, good)
            return Answer(f"{label}: {headline}.", detail, True)
        if len(mine) == len(good) == 1:
            return _only(settings, good[0])
        if good:
            return Answer(f"{label}: no setting is recommended.", _rates(settings, good), True)
        return Answer(f"{label}: no answer yet.", _no_answer(cells, device), False)
    labels = {name: factor_label(settings, name) for name in settings.factors}
    use = text.levels_text(told(settings, best.levels), labels)
    return Answer(f"{label}: use {use}.", _detail(settings, best), True)


def _only(settings: StudySettings, cell: CellRow) -> Answer:
    """Of a device with one setting only: its rate, since there is nothing to choose."""
    said = f"{text.levels_text(cell.levels)} is the only setting, so there is none to choose."
    headline = f"{settings.label(cell.device)} trains {text.rate(cell.samples_per_s)}."
    return Answer(headline, f"{said} {_MEANING.get(cell.verdict, '')}".strip(), True)


def _climbed(settings: StudySettings) -> str | None:
    """The factor whose largest level is the study's question; None where it asks another."""
    tables = [table.factor for table in settings.tables if table.kind == "largest"]
    return next((factor for factor in tables if factor in settings.ladder), None)


def points(
    settings: StudySettings,
    cells: Sequence[CellRow],
    fits: Sequence[FitRow],
    claims: Sequence[ClaimRow],
    scores: Sequence[QualityRow] = (),
) -> list[Point]:
    """The findings below the answer."""
    found = [Point(*point) for point in qualities.points(cells, scores)]
    for device in settings.measured:
        mine = [cell for cell in cells if cell.device == device and cell.status == "ok"]
        best = _recommended(settings, cells, device)
        label = settings.label(device)
        where = f" ({label})" if len(settings.measured) > 1 else ""
        if best and best.recommendation and not _climbed(settings):
            found.append(Point(f"Why this one{where}", best.recommendation))
        more = {"Out of memory": ran_out(settings, cells, device)}
        if not _asks_for_quality(settings):
            more["How fast a batch is ready"] = loaders_alone(settings, mine)
            more["Fastest elsewhere"] = elsewhere(settings, cells, device)
        found += [Point(f"{lead}{where}", said) for lead, said in more.items() if said]
        found += _limits(settings, mine, where)
        found += _noise(settings, mine, where)
        beside = " ".join(beside_published(settings, mine, device))
        found += [Point(f"Beside the published devices{where}", beside)] if beside else []
    learnt = [*sentences.taught(settings, fits), *sentences.checked(claims)]
    return found + [Point(*one) for one in learnt]


def _asks_for_quality(settings: StudySettings) -> bool:
    """Whether the study's picture is what training adds, and not a setting to use."""
    kinds = {figure.kind for figure in settings.figures}
    return "gain" in kinds and "answer" not in kinds


def _recommended(settings: StudySettings, cells: Sequence[CellRow], device: str) -> CellRow | None:
    """The setting to use on a device; none where nobody asks for speed alone."""
    other = settings.task == "inference" or _asks_for_quality(settings)
    return None if other else recommended_cell(settings, cells, device)


def failures(settings: StudySettings, cells: Sequence[CellRow]) -> list[str]:
    """Cells that were tried and have no number, or lost some of their runs.

    Where a study climbs until memory is full, to run out of it is no failure.
    """
    found = []
    for cell in cells:
        if settings.ladder and cell.status == "out_of_memory":
            continue
        name = f"{settings.label(cell.device)}, {text.levels_text(told(settings, cell.levels))}"
        if cell.status not in ("ok", "unsupported"):
            found.append(f"{name}: {text.STATUS_WORDS[cell.status]}. {cell.cause}".strip())
        elif cell.status == "ok" and cell.ok_runs < cell.runs:
            lost = f"{cell.runs - cell.ok_runs} of {text.count(cell.runs, 'run')}"
            found.append(f"{name}: {lost} did not count. {cell.cause}".strip())
    return found


def _rates(settings: StudySettings, cells: Sequence[CellRow]) -> str:
    rates = (
        f"{text.levels_text(told(settings, cell.levels))}: {text.rate(cell.samples_per_s)}"
        for cell in cells
    )
    return "; ".join(rates) + "."


def _no_answer(cells: Sequence[CellRow], device: str) -> str:
    mine = [cell for cell in cells if cell.device == device]
    tried = [cell for cell in mine if cell.status != "unsupported"]
    if tried:
        return f"None of {text.count(len(tried), 'cell')} ended well; the causes stand above."
    if mine:
        return f"It supports no cell of the study. {next(iter(unsupported_groups(mine)))}"
    return "No cell was run on it."


def _detail(settings: StudySettings, best: CellRow) -> str:
    interval = text.interval(best.ci_low, best.ci_high)
    alone = " (a single run, so no interval)" if best.ok_runs == 1 else ""
    spread = f" (interval {interval})" if interval else alone
    rate = f"It trains {text.rate(best.samples_per_s)}{spread}{_gain(settings, best)}."
    return f"{rate} {_MEANING.get(best.verdict, '')}".strip()


def _gain(settings: StudySettings, best: CellRow) -> str:
    baseline = baseline_for(settings, best.levels)
    if best.levels == baseline:
        return "; it is the baseline, and no setting is measurably faster"
    apart = {k: v for k, v in baseline.items() if k in settings.within or best.levels[k] != v}
    base = text.levels_text(apart)
    if best.speedup is None:
        return f"; there is no number for the baseline ({base}) to compare with"
    low, high = best.speedup_ci_low, best.speedup_ci_high
    interval = f" ({text.ratio_interval(low, high)})" if low is not None else ""
    same = low is not None and high is not None and low <= 1 <= high
    noise = ", which is within noise" if same else ""
    return f", {text.ratio(best.speedup)}{interval} the rate with {base}{noise}"


def _limits(settings: StudySettings, cells: Sequence[CellRow], where: str) -> list[Point]:
    groups: dict[str, list[CellRow]] = {}
    for cell in cells:
        if cell.verdict:
            groups.setdefault(cell.verdict, []).append(cell)
    parts = []
    for verdict, group in groups.items():
        waits = [c.data_wait_share for c in group if c.data_wait_share is not None]
        bound = "up to " if len(waits) > 1 else ""
        said = f" (waiting {bound}{text.share(max(waits))} of the time)" if waits else ""
        verb = "is" if len(group) == 1 else "are"
        name = "held back by no single thing" if verdict == "mixed" else verdict
        parts.append(f"{_names(settings, group)} {verb} {name}{said}")
    return [Point(f"What limits each setting{where}", "; ".join(parts) + ".")] if parts else []


def _names(settings: StudySettings, cells: Sequence[CellRow]) -> str:
    """`workers = 1 and 2; decode = host with workers = 2`: cells that differ in one factor stand
    together, whichever makes the fewest groups."""

    def grouped(factor: str) -> dict[str, list[str]]:
        groups: dict[str, list[str]] = {}
        for cell in cells:
            others = {name: level for name, level in cell.levels.items() if name != factor}
            rest = text.levels_text(told(settings, others))
            groups.setdefault(rest, []).append(level_text(cell.levels[factor]))
        return groups

    workers = next((n for n, f in settings.factors.items() if f.sets == WORKERS), None)
    factor = min(settings.factors, key=lambda name: (len(grouped(name)), name != workers))
    return "; ".join(
        f"{rest}{' with ' * bool(rest)}{factor} = {text.listed(levels)}"
        for rest, levels in grouped(factor).items()
    )


def _noise(settings: StudySettings, cells: Sequence[CellRow], where: str) -> list[Point]:
    noisy = [
        f"{text.levels_text(told(settings, cell.levels))} ({text.share(cell.spread)})"
        for cell in cells
        if cell.noisy
    ]
    if not noisy:
        return []
    said = f"the repeats differ widely at {text.listed(noisy)}; smaller gaps there say nothing."
    return [Point(f"Noise{where}", said[0].upper() + said[1:])]
