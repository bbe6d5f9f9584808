"""What the numbers say, in sentences: every one is made from result rows."""

from collections.abc import Sequence
from dataclasses import dataclass

from feedrate.config.base import Level, level_text
from feedrate.report import text
from feedrate.report.grid import (
    factor_label,
    headline,
    level_key,
    recommended_cell,
    unsupported_groups,
)
from feedrate.report.rows import CellRow, ClaimRow, FitRow
from feedrate.report.settings import StudySettings


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


def answer(settings: StudySettings, cells: Sequence[CellRow], device: str) -> Answer:
    """Which setting to use on a device, and what it gains."""
    label = settings.label(device)
    best = recommended_cell(settings, cells, device)
    if best is None:
        good = [c for c in cells if c.device == device and c.status == "ok"]
        if good:
            return Answer(f"{label}: no setting is recommended.", _rates(settings, good), True)
        return Answer(f"{label}: no answer yet.", _no_answer(cells, device), False)
    labels = {name: factor_label(settings, name) for name in settings.factors}
    use = text.levels_text(_told(settings, best.levels), labels)
    return Answer(f"{label}: use {use}.", _detail(settings, best), True)


def points(
    settings: StudySettings,
    cells: Sequence[CellRow],
    fits: Sequence[FitRow],
    claims: Sequence[ClaimRow],
) -> list[Point]:
    """The findings below the answer."""
    found: list[Point] = []
    for device in settings.measured:
        mine = [cell for cell in cells if cell.device == device and cell.status == "ok"]
        best = recommended_cell(settings, cells, device)
        label = settings.label(device)
        where = f" ({label})" if len(settings.measured) > 1 else ""
        if best and best.recommendation:
            found.append(Point(f"Why this one{where}", best.recommendation))
        found += _limits(settings, mine, where)
        found += _noise(settings, mine, where)
        beside = " ".join(_published(settings, mine, device))
        found += [Point(f"Beside the published devices{where}", beside)] if beside else []
    return found + _taught(settings, fits) + _claims(claims)


def failures(settings: StudySettings, cells: Sequence[CellRow]) -> list[str]:
    """Cells that were tried and have no number, or lost some of their runs."""
    found = []
    for cell in cells:
        name = f"{settings.label(cell.device)}, {text.levels_text(_told(settings, cell.levels))}"
        if cell.status not in ("ok", "unsupported"):
            found.append(f"{name}: {text.STATUS_WORDS[cell.status]}. {cell.cause}".strip())
        elif cell.status == "ok" and cell.ok_runs < cell.runs:
            lost = f"{cell.runs - cell.ok_runs} of {text.count(cell.runs, 'run')}"
            found.append(f"{name}: {lost} did not count. {cell.cause}".strip())
    return found


def _told(settings: StudySettings, levels: dict[str, Level]) -> dict[str, Level]:
    """The levels worth telling: the first factor's, and those that differ from the baseline."""
    first = next(iter(settings.factors))
    return {k: v for k, v in levels.items() if k == first or v != settings.baseline.get(k)}


def _rates(settings: StudySettings, cells: Sequence[CellRow]) -> str:
    rates = (
        f"{text.levels_text(_told(settings, cell.levels))}: {text.rate(cell.samples_per_s)}"
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
    spread = f" (interval {interval})" if interval else ""
    rate = f"It trains {text.rate(best.samples_per_s)}{spread}{_gain(settings, best)}."
    return f"{rate} {_MEANING.get(best.verdict, '')}".strip()


def _gain(settings: StudySettings, best: CellRow) -> str:
    base = text.levels_text(_told(settings, settings.baseline))
    if best.levels == settings.baseline:
        return "; it is the baseline, and no setting is measurably faster"
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
    """`workers = 1, 2 and 16` where cells differ in nothing else, else each in full."""
    told = [_told(settings, cell.levels) for cell in cells]
    if all(len(levels) == 1 for levels in told):
        (name,) = told[0]
        return f"{name} = {text.listed(level_text(levels[name]) for levels in told)}"
    return "; ".join(text.levels_text(levels) for levels in told)


def _noise(settings: StudySettings, cells: Sequence[CellRow], where: str) -> list[Point]:
    noisy = [
        f"{text.levels_text(_told(settings, cell.levels))} ({text.share(cell.spread)})"
        for cell in cells
        if cell.noisy
    ]
    if not noisy:
        return []
    said = f"the repeats differ widely at {text.listed(noisy)}; smaller gaps there say nothing."
    return [Point(f"Noise{where}", said[0].upper() + said[1:])]


def _published(settings: StudySettings, cells: Sequence[CellRow], device: str) -> list[str]:
    """How the machine stands beside the published devices: by rate where a device is the same,
    by what the same change of settings brings where it is not."""
    ours = {level_key(c.levels): c for c in cells if c.samples_per_s}
    found = [*_same_device(settings, ours, device), *_same_step(settings, ours, device)]
    return found + _unlike(settings, device) if found else []


def _same_device(settings: StudySettings, ours: dict[str, CellRow], device: str) -> list[str]:
    known = headline(settings)
    keys = [key for key in ours if (device, key) in known]
    if not keys:
        return []
    key = max(keys, key=lambda key: known[device, key].value)
    cell, theirs = ours[key], known[device, key].value
    levels = text.levels_text(_told(settings, cell.levels))
    over = text.ratio((cell.samples_per_s or 0.0) / theirs)
    return [
        f"Published for {settings.label(device)} at {levels}: {text.exact(theirs)} samples/s; "
        f"here {text.rate(cell.samples_per_s)}, which is {over} that."
    ]


def _same_step(settings: StudySettings, ours: dict[str, CellRow], device: str) -> list[str]:
    known, base = headline(settings), level_key(settings.baseline)
    devices = {key: [d for d, k in known if k == key and (d, base) in known] for key in ours}
    keys = [key for key in ours if key != base and devices[key] and ours[key].speedup]
    if not keys:
        return []
    key = max(keys, key=lambda key: (len(devices[key]), ours[key].speedup or 0.0))
    theirs = text.listed(
        f"{text.ratio(known[d, key].value / known[d, base].value)} on {settings.label(d)}"
        for d in devices[key]
    )
    start = text.levels_text(_told(settings, settings.baseline))
    end = text.levels_text(_told(settings, ours[key].levels))
    return [
        f"From {start} to {end} throughput goes {text.ratio(ours[key].speedup)} on "
        f"{settings.label(device)} here. Published: {theirs}."
    ]


def _unlike(settings: StudySettings, device: str) -> list[str]:
    """What sets our runs apart from the published ones, so that rates are not compared blindly."""
    setup, first = settings.setups.get(device), next(iter(headline(settings).values()), None)
    if not setup or not first:
        return []
    theirs = (settings.size, first.count, first.batch_size)
    if (setup.size, setup.count, setup.batch_size) == theirs:
        return []
    return [
        f"Compare shapes, not rates: the published runs trained {setup.model} {settings.size} on "
        f"{text.count(first.count, 'device')} with batch {first.batch_size}; "
        f"{settings.label(device)} here trained {setup.model} {setup.size} on "
        f"{text.count(setup.count, 'device')} with batch {setup.batch_size}, {setup.precision}."
    ]


def _taught(settings: StudySettings, fits: Sequence[FitRow]) -> list[Point]:
    """What the loader model says of the published numbers, and of ours."""
    theirs = [fit for fit in fits if fit.origin != "here"]
    free: dict[int, list[str]] = {}
    for device in dict.fromkeys(fit.device for fit in theirs):
        mine = [f for f in theirs if f.device == device and f.bound == "compute"]
        workers = [f.loader_workers for f in mine if f.loader_workers is not None]
        if workers:
            free.setdefault(min(workers), []).append(settings.label(device))
    said = [
        f"{text.listed(names)} look compute-bound from {text.count(workers, 'worker')} on."
        for workers, names in free.items()
    ]
    said += dict.fromkeys(fit.across_devices for fit in theirs if fit.across_devices)
    found = [Point("What the published numbers say", " ".join(said))] if said else []
    ours: dict[str, str] = {}
    for fit in fits:
        if fit.origin == "here" and fit.reading:
            ours.setdefault(fit.device, fit.reading)
    return found + [Point("What ours say", reading) for reading in ours.values()]


def _claims(claims: Sequence[ClaimRow]) -> list[Point]:
    if not claims:
        return []
    checked = [claim for claim in claims if claim.published_verdict and claim.published_value]
    agree = sum(claim.published_verdict == "consistent" for claim in checked)
    verdicts = [claim.verdict for claim in claims]
    held, broken = verdicts.count("holds"), verdicts.count("does not")
    said = (
        f"Of the ratios that the source prints, {agree} of {len(checked)} agree with its own "
        f"table. Measured here: {held} hold, {broken} do not, "
        f"{len(verdicts) - held - broken} have no data here."
    )
    return [Point("Claims", said)]
