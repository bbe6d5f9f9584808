"""The findings below a study's answer: sentences made from its result rows."""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from statistics import mean
from typing import NamedTuple

from feedrate.config.study import Exclude
from feedrate.config.values import level_text
from feedrate.report import answers, limits, text
from feedrate.report.answers import is_about_quality, name_of
from feedrate.report.context import StudyContext
from feedrate.report.limits import Said, several
from feedrate.report.lines import against, first_runs, level_key, notable, published_rates
from feedrate.report.rows import CellOf, CellRow, ClaimRow, Results, RunRow
from feedrate.results.claims import VERDICTS
from feedrate.results.comparability import because, trains_the_same

LOSSES = "Losses compared with the baseline's"


class Finding(NamedTuple):
    """A subject, a sentence, and the cells behind it; without a sentence there is no finding."""

    lead: str
    text: str
    cells: Sequence[CellOf] = ()


def findings(study: StudyContext, results: Results) -> list[Finding]:
    """All findings of a study, in the order of the page."""
    found = [
        Finding("Equal losses", *_equal_losses(results.cells)),
        Finding(LOSSES, *_quality(study, results.cells)),
        Finding("Cost of evaluation", *_evaluation_cost(results.runs)),
    ]
    for device in study.measured:
        where = f" ({study.label(device)})" if len(study.measured) > 1 else ""
        sentences = _of_device(study, results, device)
        if is_about_quality(study):
            sentences |= _of_quality(study, results, device)
        found += [Finding(lead + where, *said) for lead, said in sentences.items()]
    found += _claims(results.claims)
    return [finding for finding in found if finding.text]


def failures(study: StudyContext, cells: Sequence[CellRow]) -> list[Finding]:
    """Cells that were tried and have no number, or lost some of their runs. Running out of memory
    is no failure in a study with a memory ladder."""
    found: list[Finding] = []
    for cell in cells:
        if cell.measured_as or (study.ladder and cell.status == "out_of_memory"):
            continue
        name = f"{study.label(cell.device)}, {name_of(study, cell)}"
        if cell.status not in ("ok", "unsupported"):
            why = f"{text.STATUS_WORDS[cell.status]}. {cell.cause}".strip()
            found.append(Finding(name, why, [cell]))
        elif cell.status == "ok" and cell.ok_runs < cell.runs:
            lost = f"{cell.runs - cell.ok_runs} of {text.counted(cell.runs, 'run')}"
            found.append(Finding(name, f"{lost} did not count. {cell.cause}".strip(), [cell]))
    return found


def failed(cells: int) -> str:
    """The heading of `failures`."""
    return f"{text.counted(cells, 'cell')} with runs that do not count"


def _of_device(study: StudyContext, results: Results, device: str) -> dict[str, Said]:
    cells, runs = results.cells, results.runs
    good = [cell for cell in cells if cell.device == device and cell.status == "ok"]
    ladder, quality = answers.ladder_factor(study), is_about_quality(study)
    best = None if ladder else answers.recommendation(study, cells, device)
    undecided = answers.left_open(good, device)
    if undecided and not (best or ladder or quality):
        undecided.popitem()  # the answer says it
    speed = () if quality else good
    return {
        "Why this setting": (best.recommendation, [best]) if best else ("", ()),
        "Undecided": (_undecided(study, undecided), [*itertools.chain(*undecided.values())]),
        "Out of memory": limits.out_of_memory(study, cells, device),
        "Loader-only throughput": limits.loader_rates(study, speed, runs),
        "Other recommendations": _other_recommendations(study, results, speed, device),
        "What limits each setting": limits.verdicts(study, good),
        "Ceilings below the rate": limits.below_rate(study, good),
        "Noise": limits.noise(study, good),
        "Mixed software": limits.mixed_software(study, good, results),
        "Short epochs": limits.short_epochs(study, good),
        "Compared with published numbers": _published(study, good, device, runs),
    }


def _undecided(study: StudyContext, found: Mapping[str, Sequence[CellRow]]) -> str:
    """The choices that the runs leave open. Settings at several levels of a factor in `within` are
    named once."""
    names, parts = study.within, list[str]()

    def between(why: str) -> str:
        levels = [cell.levels.items() for cell in found[why]]
        return several(study, [{k: v for k, v in one if k not in names} for one in levels])

    for settings, whys in text.grouped(found, between).items():
        if len(whys) == 1:
            parts += whys
            continue
        cells = [cell for why in whys for cell in found[why]]
        at = [{name: found[why][0].levels[name] for name in names} for why in whys]
        more = text.counted(max(cell.repeats_to_decide or 1 for cell in cells), "further repeat")
        single = cells[0].basis
        needed = f"{single}; each needs {'at least' if single else 'about'} {more}."
        parts.append(f"With {several(study, at)}: undecided between {settings}{needed}")
    return " ".join(parts)


# Quality


def _of_quality(study: StudyContext, results: Results, device: str) -> dict[str, Said]:
    """The effect of training in cells that the answer does not name, and the cells left out."""
    others = answers.training_gains(study, results, device)[1:]
    changes = "; ".join(change for change, *_ in others)
    apart = f"{changes}. No test compares the scores of settings." * bool(others)
    parts = [p for p in study.exclude if p.unless_able not in study.devices[device].able]
    reasons = (f"{text.levels_text(part.levels)}{_kept(part)}: {part.why}" for part in parts)
    return {
        "Other settings": (apart, [cell for *_, cell in others]),
        "Left out": (" ".join(reasons), ()),
    }


def _kept(part: Exclude) -> str:
    """The levels with which a part of `exclude` keeps cells."""
    kept = (f"{name} = {text.listed(map(level_text, of))}" for name, of in part.unless.items())
    return f", except with {text.listed(kept)}" * bool(part.unless)


def _equal_losses(cells: Iterable[CellRow]) -> Said:
    same = [cell for cell in cells if cell.loss_identical and not cell.measured_as]
    words = (
        f"The losses of {_counted(same)} equal the baseline's bit for bit, "
        "because the batches are the same. This shows that training is deterministic, and says "
        "nothing about quality."
    )
    return words * bool(same), same


def _counted(cells: Sequence[CellRow]) -> str:
    """`3 settings`; on several devices, `6 cells`."""
    return text.counted(len(cells), "cell" if len({c.device for c in cells}) > 1 else "setting")


def _quality(study: StudyContext, cells: Iterable[CellRow]) -> Said:
    own = (cell for cell in cells if cell.loss_shift is not None and not cell.measured_as)
    compared = [cell for cell in own if not cell.loss_identical]
    many = len(study.measured) > 1
    others = [
        f"{study.label(cell.device)}: " * many + text.values_text(cell.levels)
        for cell in compared
        if cell.loss_departs
    ]
    departs = "from the baseline's by more than the effect of seeds"
    if others:
        verb = "losses of {} differ" if len(others) > 1 else "loss of {} differs"
        differ = verb.format("; ".join(others))
        return f"A warning, not a test: the {differ} {departs}.", compared
    count = _counted(compared)
    none = f"None differs {departs} ({count} compared). This does not show that they are equal."
    return none if compared else "", compared


def _evaluation_cost(runs: Iterable[RunRow]) -> Said:
    evaluated = [run for run in runs if run.evaluation_s and not run.measured_as]
    if not evaluated:
        return "", ()
    takes = text.seconds(mean(run.evaluation_s for run in evaluated))
    count = text.counted(len(evaluated), "run")
    words = (
        f"Evaluating a run's model before and after training takes {takes} on average ({count})."
    )
    return words, evaluated


# Cells of a device


def _other_recommendations(
    study: StudyContext, results: Results, cells: Sequence[CellRow], device: str
) -> Said:
    """The recommended cells that the answer does not name: those at other levels of the factors
    that are `apart`."""
    answered = {cell.key for cell in answers.answer(study, results, device).cells}
    others = [cell for cell in cells if cell.recommended and cell.key not in answered]
    named = (f"{name_of(study, c)}, {text.rate(c.samples_per_s)}" for c in others)
    return f"{'; '.join(named)}." * bool(others), others


# Published numbers and claims


def _published(
    study: StudyContext, cells: Sequence[CellRow], device: str, runs: Sequence[RunRow]
) -> Said:
    """Measured and published numbers: rates for the same device, otherwise the ratios that the
    same change of settings brings; and why they are not comparable."""
    ours = {level_key(cell.levels): cell for cell in cells if cell.samples_per_s}
    first = {key: run for (where, key), run in first_runs(runs).items() if where == device}
    ours = {key: cell for key, cell in ours.items() if key in first}
    found = [part(study, ours, first, device) for part in (_same_device, _same_change)]
    return " ".join(said for said, _ in found if said), [cell for _, of in found for cell in of]


def _same_device(
    study: StudyContext, ours: dict[str, CellRow], runs: dict[str, RunRow], device: str
) -> Said:
    """The setting with the highest published rate."""
    known = published_rates(study)
    keys = [key for key in ours if (device, key) in known]
    if not keys:
        return "", ()
    key = max(keys, key=lambda key: known[device, key].value)
    cell, theirs = ours[key], known[device, key]
    wrong = against(study, theirs, runs[key], "rate")
    ratio = text.ratio((cell.samples_per_s or 0.0) / theirs.value)
    compared = f". {because(wrong)}" if wrong else f", {ratio} the published rate."
    here = text.with_interval(cell.samples_per_s, cell.ci_low, cell.ci_high, "samples/s")
    return (
        f"Published for {study.label(device)} with {name_of(study, cell)}: "
        f"{text.exact(theirs.value)} samples/s. Measured here: {here}{cell.basis}{compared}"
    ), [cell]


def _same_change(
    study: StudyContext, ours: dict[str, CellRow], runs: dict[str, RunRow], device: str
) -> Said:
    """The change that the source puts forward: published for most devices, then with the largest
    published speed-ups. What was measured here does not matter for the choice."""
    known, base = published_rates(study), level_key(study.baseline)
    ours = {
        key: cell
        for key, cell in ours.items()
        if trains_the_same(study.factors, cell.levels, study.baseline)
    }
    gains: dict[str, dict[str, float]] = {}
    for (where, key), row in known.items():
        if key != base and key in ours and ours[key].speedup and (where, base) in known:
            gains.setdefault(key, {})[where] = row.value / known[where, base].value
    if not gains:
        return "", ()
    key = max(gains, key=lambda key: (len(gains[key]), sum(gains[key].values())))
    theirs = text.listed(f"{text.ratio(g)} on {study.label(d)}" for d, g in gains[key].items())
    start, cell = text.levels_text(notable(study, study.baseline)), ours[key]
    interval = text.ratio_interval(cell.speedup_ci_low, cell.speedup_ci_high)
    ratio = text.with_remark(text.ratio(cell.speedup), interval or cell.basis.removeprefix(", "))
    rows = [known[d, key] for d in gains[key]]
    wrong = dict.fromkeys(r for row in rows for r in against(study, row, runs[key], "ratio"))
    return (
        f"From {start} to {name_of(study, cell)}, throughput changes by "
        f"{ratio} on {study.label(device)} here. Published: {theirs}."
        + (f" {because(wrong)}" if wrong else "")
    ), [ours[k] for k in (base, key) if k in ours]


def _claims(claims: Sequence[ClaimRow]) -> list[Finding]:
    printed = [claim for claim in claims if claim.published_verdict and claim.published_value]
    agree = sum(claim.published_verdict == "consistent" for claim in printed)
    found = []
    for heading, group in text.grouped(claims, lambda claim: claim.heading).items():
        compared = [cell for claim in group for cell in claim.compared]
        found.append(Finding(heading, f"{len(group)} in all: {outcomes(group)}.", compared))
    ratios = f"{agree} of {len(printed)} agree with the source's own table."
    return [*found, Finding("Printed ratios", ratios * bool(printed))]


def claims_found(claims: Sequence[ClaimRow]) -> list[tuple[str, str, list[CellOf]]]:
    """Of the source's claims and of our own questions: the heading, the outcomes, and the cells."""
    groups = text.grouped(claims, lambda claim: claim.heading)
    return [
        (heading, outcomes(group), [cell for claim in group for cell in claim.compared])
        for heading, group in groups.items()
    ]


def outcomes(claims: Sequence[ClaimRow]) -> str:
    """`holds (2), refuted (1)`."""
    verdicts = [claim.verdict for claim in claims]
    return ", ".join(f"{one} ({verdicts.count(one)})" for one in VERDICTS if one in verdicts)
