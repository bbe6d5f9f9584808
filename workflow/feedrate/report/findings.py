"""The findings below a study's answer: sentences made from its result rows."""

from collections.abc import Iterable, Sequence
from functools import partial
from statistics import mean, median
from typing import NamedTuple

from feedrate.config.values import level_text
from feedrate.jobs.events import NOT_TRIED
from feedrate.report import text
from feedrate.report.answers import (
    is_about_quality,
    ladder_factor,
    recommendation,
    recommended_cell,
)
from feedrate.report.lines import level_key, notable, published_rates
from feedrate.report.params import StudySettings
from feedrate.report.rows import CellRow, ClaimRow, FitRow, QualityRow
from feedrate.results.loader_model import POOR_FIT
from feedrate.results.settings import DECODE, WORKERS


class Finding(NamedTuple):
    """A subject and a sentence; without a sentence there is no finding."""

    lead: str
    text: str


def findings(
    study: StudySettings,
    cells: Sequence[CellRow],
    fits: Sequence[FitRow],
    claims: Sequence[ClaimRow],
    scores: Sequence[QualityRow] = (),
) -> list[Finding]:
    """All findings of a study, in the order of the page."""
    found = [_quality(cells), _scoring_cost(scores)]
    for device in study.measured:
        where = f" ({study.label(device)})" if len(study.measured) > 1 else ""
        sentences = _of_device(study, cells, device)
        found += [Finding(lead + where, sentence) for lead, sentence in sentences.items()]
    found += [*_fits(study, fits), _claims(claims)]
    return [finding for finding in found if finding.text]


def failures(study: StudySettings, cells: Sequence[CellRow]) -> list[str]:
    """Cells that were tried and have no number, or lost some of their runs.

    Running out of memory is no failure in a study with a memory ladder.
    """
    found = []
    for cell in cells:
        if cell.measured_as or (study.ladder and cell.status == "out_of_memory"):
            continue
        name = f"{study.label(cell.device)}, {_name(study, cell)}"
        if cell.status not in ("ok", "unsupported"):
            found.append(f"{name}: {text.STATUS_WORDS[cell.status]}. {cell.cause}".strip())
        elif cell.status == "ok" and cell.ok_runs < cell.runs:
            lost = f"{cell.runs - cell.ok_runs} of {text.count(cell.runs, 'run')}"
            found.append(f"{name}: {lost} did not count. {cell.cause}".strip())
    return found


def _of_device(study: StudySettings, cells: Sequence[CellRow], device: str) -> dict[str, str]:
    good = [cell for cell in cells if cell.device == device and cell.status == "ok"]
    best = None if ladder_factor(study) else recommendation(study, cells, device)
    asks_for_speed = not is_about_quality(study)
    return {
        "Why this setting": best.recommendation if best else "",
        "Out of memory": _out_of_memory(study, cells, device),
        "Loader-only throughput": _loader_rates(study, good) if asks_for_speed else "",
        "Other recommendations": (
            _other_recommendations(study, cells, device) if asks_for_speed else ""
        ),
        "What limits each setting": _limits(study, good),
        "Noise": _noise(study, good),
        "Short epochs": _short_epochs(study, good),
        "Compared with published numbers": _published(study, good, device),
    }


def _name(study: StudySettings, cell: CellRow) -> str:
    return text.levels_text(notable(study, cell.levels))


# Quality


def _quality(cells: Iterable[CellRow]) -> Finding:
    compared = [cell for cell in cells if cell.loss_shift is not None]
    other = "; ".join(text.values_text(cell.levels) for cell in compared if cell.loss_departs)
    departs = "from the baseline's by more than the effect of seeds"
    if other:
        return Finding("Different quality", f"The loss of {other} differs {departs}.")
    count = text.count(len(compared), "setting")
    none = f"No loss differs {departs} ({count} compared)." if compared else ""
    return Finding("Equal quality", none)


def _scoring_cost(scores: Iterable[QualityRow]) -> Finding:
    took_s = {(*row.key, row.repeat): row.job_s for row in scores if row.status == "ok"}
    known_s = [one for one in took_s.values() if one]
    if not known_s:
        return Finding("Cost of scoring", "")
    return Finding(
        "Cost of scoring",
        f"Scoring a model before and after training takes {text.seconds(mean(known_s))} on average "
        f"({text.count(len(known_s), 'model')}).",
    )


# Cells of a device


def _out_of_memory(study: StudySettings, cells: Sequence[CellRow], device: str) -> str:
    """The number of cells of a ladder that ran out of memory, and of those skipped for that."""
    mine = [c for c in cells if c.device == device and c.status == "out_of_memory"]
    if not (mine and study.ladder):
        return ""
    skipped = sum(cell.cause.startswith(NOT_TRIED) for cell in mine)
    needs, were = ("needs", "was") if skipped == 1 else ("need", "were")
    more = f"; {text.count(skipped, 'cell')} that {needs} at least as much {were} skipped"
    ran_out = f"{text.count(len(mine) - skipped, 'cell')} ran out of memory, which is a result"
    return f"{ran_out}{more * bool(skipped)}."


def _loader_rates(study: StudySettings, cells: Sequence[CellRow]) -> str:
    """The loader-only throughput of each decode path, where a study compares several; else empty.

    Only cells with as many workers as the baseline are compared.
    """
    factors = {factor.sets: name for name, factor in study.factors.items()}
    if DECODE not in factors:
        return ""
    workers = factors.get(WORKERS, "")
    rates: dict[str, float] = {}
    base: float | None = None
    for cell in cells:
        rate, count = cell.loader_samples_per_s, cell.levels.get(workers)
        if rate and count == study.baseline.get(workers):
            others = {name: v for name, v in cell.levels.items() if name != workers}
            rates[text.levels_text(notable(study, others)) or "the baseline"] = rate
            base = rate if cell.levels == study.baseline else base
    if len(rates) < 2 or base is None:
        return ""
    listed = text.listed(
        f"{name} {text.number(rate, 3)} samples/s ({text.TIMES}{text.number(rate / base, 3)})"
        for name, rate in rates.items()
    )
    alike = f"With {workers} = {study.baseline[workers]}: " if workers else ""
    sentences = [f"{alike}{listed}."]
    if models := [cell.model_samples_per_s for cell in cells if cell.model_samples_per_s]:
        sentences.append(f"Model-only throughput is {text.number(median(models), 3)} samples/s.")
    return " ".join(sentences)


def _other_recommendations(study: StudySettings, cells: Sequence[CellRow], device: str) -> str:
    """The recommended cells at the other levels of factors that no comparison crosses."""
    best = recommended_cell(study, cells, device)
    others = [c for c in cells if c.device == device and c.recommended and c is not best]
    if best is None or not others or not study.within:
        return ""
    return "; ".join(f"{_name(study, c)}, {text.rate(c.samples_per_s)}" for c in others) + "."


def _limits(study: StudySettings, cells: Sequence[CellRow]) -> str:
    parts = []
    judged = (cell for cell in cells if cell.verdict)
    for verdict, group in text.grouped(judged, lambda cell: cell.verdict).items():
        waits = [c.data_wait_share for c in group if c.data_wait_share is not None]
        bound = "up to " if len(waits) > 1 else ""
        wait = f" (waiting for data {bound}{text.share(max(waits))} of the time)" if waits else ""
        verb = "is" if len(group) == 1 else "are"
        words = {"mixed": "limited by no single cause", "memory-pressed": "memory-limited"}
        parts.append(f"{_group_name(study, group)} {verb} {words.get(verdict, verdict)}{wait}")
    return "; ".join(parts) + "." if parts else ""


def _group_name(study: StudySettings, cells: Sequence[CellRow]) -> str:
    """`workers = 1 and 2; decode = host with workers = 2`: cells that differ in one factor are
    grouped, by the factor that makes the fewest groups."""

    def others(cell: CellRow, factor: str) -> str:
        rest = {name: level for name, level in cell.levels.items() if name != factor}
        return text.levels_text(notable(study, rest))

    groups = {name: text.grouped(cells, partial(others, factor=name)) for name in study.factors}
    workers = next((n for n, f in study.factors.items() if f.sets == WORKERS), None)
    factor = min(groups, key=lambda name: (len(groups[name]), name != workers))
    return "; ".join(
        f"{rest}{' with ' * bool(rest)}{factor} = "
        + text.listed(level_text(cell.levels[factor]) for cell in group)
        for rest, group in groups[factor].items()
    )


def _noise(study: StudySettings, cells: Sequence[CellRow]) -> str:
    found = [f"{_name(study, cell)}: {cell.disturbed}" for cell in cells if cell.disturbed]
    wide = [c for c in cells if c.noisy and not c.disturbed]
    if wide:
        names = text.listed(f"{_name(study, cell)} ({text.share(cell.spread)})" for cell in wide)
        found.append(
            f"The repeats differ widely at {names}; smaller differences between settings are not "
            "significant there."
        )
    return " ".join(found)


def _short_epochs(study: StudySettings, cells: Sequence[CellRow]) -> str:
    short = [
        f"{_name(study, cell)} ({cell.steps_per_epoch})" for cell in cells if cell.short_epochs
    ]
    why = "Too few steps per epoch to be compared with published rates"
    return f"{why}: {text.listed(short)}." if short else ""


# Published numbers, the loader model, and claims


def _published(study: StudySettings, cells: Sequence[CellRow], device: str) -> str:
    """Measured and published numbers: rates for the same device, otherwise the ratios that the
    same change of settings brings; and the differences between the runs."""
    ours = {
        level_key(cell.levels): cell
        for cell in cells
        if cell.samples_per_s and not cell.short_epochs
    }
    found = [_same_device(study, ours, device), _same_change(study, ours, device)]
    return " ".join(filter(None, [*found, _differences(study, device) if any(found) else ""]))


def _same_device(study: StudySettings, ours: dict[str, CellRow], device: str) -> str:
    known = published_rates(study)
    keys = [key for key in ours if (device, key) in known]
    if not keys:
        return ""
    key = max(keys, key=lambda key: known[device, key].value)
    rate, theirs = ours[key].samples_per_s or 0.0, known[device, key].value
    return (
        f"Published for {study.label(device)} with {_name(study, ours[key])}: "
        f"{text.exact(theirs)} samples/s. Measured here: {text.rate(rate)} "
        f"({text.ratio(rate / theirs)})."
    )


def _same_change(study: StudySettings, ours: dict[str, CellRow], device: str) -> str:
    known, base = published_rates(study), level_key(study.baseline)
    devices = {key: [d for d, k in known if k == key and (d, base) in known] for key in ours}
    keys = [key for key in ours if key != base and devices[key] and ours[key].speedup]
    if not keys:
        return ""
    key = max(keys, key=lambda key: (len(devices[key]), ours[key].speedup or 0.0))
    theirs = text.listed(
        f"{text.ratio(known[d, key].value / known[d, base].value)} on {study.label(d)}"
        for d in devices[key]
    )
    start = text.levels_text(notable(study, study.baseline))
    return (
        f"From {start} to {_name(study, ours[key])}, throughput changes by "
        f"{text.ratio(ours[key].speedup)} on {study.label(device)} here. Published: {theirs}."
    )


def _differences(study: StudySettings, device: str) -> str:
    """The differences between our runs and the published ones, which forbid comparing rates."""
    setup, first = study.setups.get(device), next(iter(published_rates(study).values()), None)
    if not setup or not first:
        return ""
    if (setup.size, setup.count, setup.batch_size) == (study.size, first.count, first.batch_size):
        return ""
    return (
        f"Compare ratios, not rates: the published runs trained {setup.model} {study.size} on "
        f"{text.count(first.count, 'device')} with batch {first.batch_size}; here "
        f"{study.label(device)} trained {setup.model} {setup.size} on "
        f"{text.count(setup.count, 'device')} with batch {setup.batch_size}, {setup.precision}."
    )


def _fits(study: StudySettings, fits: Sequence[FitRow]) -> list[Finding]:
    """The loader model's reading of the published numbers, and of ours."""
    published = [fit for fit in fits if fit.origin != "here"]
    fewest: dict[str, int] = {}
    for fit in published:
        if fit.bound == "compute" and fit.loader_workers is not None:
            name = fit.called(study.label(fit.device))
            fewest[name] = min(fit.loader_workers, fewest.get(name, fit.loader_workers))
    parts = [
        f"{text.listed(group)} {'look' if len(group) > 1 else 'looks'} compute-bound from "
        f"{text.count(workers, 'worker')} on."
        for workers, group in text.grouped(fewest, fewest.__getitem__).items()
    ]
    parts += dict.fromkeys(fit.across_devices for fit in published if fit.across_devices)
    ours: dict[str, FitRow] = {}  # the first fit of each device: its cells are like the baseline
    for fit in fits:
        if fit.origin == "here" and fit.reading:
            ours.setdefault(fit.device, fit)
    return [
        Finding("Published numbers", " ".join(parts)),
        *(Finding("Measured numbers", _reading(study, fit)) for fit in ours.values()),
    ]


def _reading(study: StudySettings, fit: FitRow) -> str:
    """The reading of a fit, unless its error is so large that it would mislead."""
    if fit.max_error is None or fit.max_error <= POOR_FIT:
        return fit.reading
    return (
        f"On {fit.called(study.label(fit.device))} the model with two constants, which explains "
        f"the published numbers, has an error of up to {text.share(fit.max_error)}: another effect "
        "matters there, such as CPU cores that workers and training share."
    )


def _claims(claims: Sequence[ClaimRow]) -> Finding:
    """The number of claims that agree with the source's own table, and that hold here."""
    printed = [claim for claim in claims if claim.published_verdict and claim.published_value]
    agree = sum(claim.published_verdict == "consistent" for claim in printed)
    verdicts = [claim.verdict for claim in claims]
    held, refuted = verdicts.count("holds"), verdicts.count("does not")
    unknown = len(verdicts) - held - refuted
    source = f"Printed ratios that agree with the source's table: {agree} of {len(printed)}. "
    here = (
        f"Claims that hold here: {held} of {len(verdicts)}; that do not: {refuted}; "
        f"without data here: {unknown}."
    )
    return Finding("Claims", source * bool(printed) + here if claims else "")
