"""What the first screen of a study says: the facts of each sentence, from rows of results.
The words are in report/templates/sentences.j2."""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from feedrate.config.values import BETWEEN_LEVELS, level_text, parse_levels
from feedrate.report import audit, text
from feedrate.report.html import sentence
from feedrate.report.rows import AnswerRow, CellOf, CellRow, Line, varying_factors, without
from feedrate.report.scores import NAMES, Scored, scored, winoground
from feedrate.report.study import StudyResults
from feedrate.results.conformity import DISTURBED, cause_kind, merge_causes
from feedrate.results.record import Score
from feedrate.results.schema import BAD

FEW = 4
"""Settings that a sentence names; more are counted."""


class Statement(NamedTuple):
    """A sentence, and the cells or runs whose records it rests on."""

    text: str
    cells: Sequence[CellOf] = ()
    device: str = ""
    """The label of the device that it is about; empty: of the study."""


def answers(study: StudyResults) -> list[Statement]:
    """The answer for each device: what to use, or what fits, or what training adds."""
    return [_answer(study, device)._replace(device=study.label(device)) for device in study.devices]


def _answer(study: StudyResults, device: str) -> Statement:
    tried = [cell for cell in study.tried if cell.device == device]
    good = [cell for cell in tried if cell.samples_per_s is not None]
    models = [each for each in scored(study) if each.cell.device == device]
    if study.asks == "learning" and models:
        return _learning(study, models)
    if not good:
        return _no_answer(study, device, tried)
    if study.asks == "largest":
        return largest(study, study.lines_of_answer(device), study.answer(device))
    if study.asks == "latency":
        return _latency(study, good)
    answer = study.answer(device)
    return speed(study, answer) if answer else _no_answer(study, device, tried)


def _no_answer(study: StudyResults, device: str, tried: Sequence[CellRow]) -> Statement:
    tried = [cell for cell in tried if cell.status != "missing"]
    runs = [run for cell in tried for run in study.runs_of(cell) if run.status != "missing"]
    checks = [set(run.failed_checks.split(";")) for run in runs if run.status == "invalid"]
    words = sentence(
        "no_answer",
        failed=sum(cell.status != "missing" for cell in tried),
        full=bool(tried) and all(cell.status == "out_of_memory" for cell in tried),
        disturbed=bool(checks) and len(checks) == len(runs) and all(c <= DISTURBED for c in checks),
        unsupported=not any(run.device == device for run in study.plan.runs),
    )
    return Statement(words, tried)


def speed(study: StudyResults, answer: AnswerRow) -> Statement:
    """The answer for a device and the levels of `within`."""
    cell = study.cell(answer.device, answer.levels)
    use, rate = study.setting(answer.levels), text.number(answer.samples_per_s)
    by_share = study.by_share(answer.device)
    share = cell.share.value if cell and cell.share and by_share else None
    bounds = {"low": answer.limit_gain_low, "high": answer.limit_gain_high}
    gain_words = sentence("loader_gain", share=share, **bounds)
    if answer.compared < 2 or cell is None:
        words = sentence("alone", use=use, rate=rate, share=share)
        return Statement(f"{words} {gain_words}".strip(), [answer])
    baseline = study.baseline_cell(cell)
    is_baseline = answer.cell == answer.baseline
    nearest = parse_levels(answer.nearest, BETWEEN_LEVELS) if answer.nearest else None
    bad = [other for other in study.tried if other.device == cell.device and other.status in BAD]
    change = text.bounds(answer.nearest_low - 1, answer.nearest_high - 1) if nearest else ""
    words = sentence(
        "speed",
        use=use,
        rate=rate,
        share=share,
        drift_removed=by_share,
        baseline="" if is_baseline else study.setting_of_baseline(cell),
        gain=text.percent((cell.speedup or 1.0) - 1) + "%",
        at_least=None if baseline is None or not baseline.ok_runs else answer.gain_at_least,
        at_most=answer.loss_at_most,
        nearest=study.setting(nearest) if nearest else "",
        nearest_change=change,
        more_repeats=answer.more_repeats or 0,
        smallest=study.study.thresholds.smallest_effect,
        confidence=study.study.thresholds.confidence,
        single=answer.single,
        lacking=any(study.baseline_cell(other) is baseline for other in bad),
    )
    cells = [answer] if baseline is None or is_baseline else [answer, baseline]
    return Statement(f"{words} {gain_words}".strip(), cells)


def largest(study: StudyResults, lines: Sequence[Line], answer: AnswerRow | None) -> Statement:
    """Of lines with a rate, the one with the largest level that fits; of several, the fastest. Then
    the fastest cell of all lines, and the answer's if that is a simpler one."""
    factor, lines = study.along, [line for line in lines if line.ok]
    order = study.study.factors[factor].texts

    def level(cell: CellRow) -> str:
        return level_text(cell.levels[factor])

    def reach(line: Line) -> int:
        return order.index(level(line.ok[-1]))

    def setting(cell: CellRow) -> str:
        names = study.varied.difference(study.study.within)
        return study.words({n: level for n, level in cell.levels.items() if n in names})

    line = max(lines, key=lambda line: (reach(line), line.ok[-1].samples_per_s))
    last, beyond = line.ok[-1], line.cells[line.cells.index(line.ok[-1]) + 1 :]
    equals = [one.ok[-1] for one in lines if reach(one) == reach(line) and one is not line]
    fastest = max((c for one in lines for c in one.ok), key=lambda cell: cell.samples_per_s)
    use = study.cell(answer.device, answer.levels) if answer else None
    unsupported = [c for c in study.cells if (c.device, c.status) == (line.device, "unsupported")]
    apart = study.varied.intersection(study.study.within) - {factor}
    words = sentence(
        "largest",
        where=study.words({name: last.levels[name] for name in sorted(apart)}),
        level=level(last),
        label=study.factor_label(factor),
        others=study.words({n: level for n, level in line.others.items() if n not in apart}),
        equals=names(study, equals) if equals else "",
        rate=text.with_interval(last.samples_per_s, last.ci_low, last.ci_high),
        memory=f"{text.number(last.peak_memory_gib)} GiB" if last.peak_memory_gib else "",
        fastest="" if fastest is last else setting(fastest),
        fast_rate=text.number(fastest.samples_per_s),
        use="" if use in (None, fastest) else setting(use),
        use_rate=text.number(use.samples_per_s if use else None),
        tried=len({level(c) for each in lines for c in each.cells if c.status != "missing"}),
        beyond_failed=any(cell.status != "missing" for cell in beyond),
        beyond_missing=any(cell.status == "missing" for cell in beyond),
        out_of_memory=level(line.too_large) if line.too_large else "",
        beyond_unsupported=any(order.index(level(c)) > reach(line) for c in unsupported),
    )
    return Statement(words, [last, fastest])


def _latency(study: StudyResults, good: Sequence[CellRow]) -> Statement:
    """At the baseline's levels of the factors in `within`, if these have a number: of the settings
    that may be the best at a batch size, the simplest one."""
    fixed = {n: study.study.baseline[n] for n in study.study.within if n != study.along}
    main = [cell for cell in good if fixed.items() <= cell.levels.items()] or good
    timed = [cell for cell in main if cell.step_time_median_s] or main
    quick = min(timed, key=lambda cell: cell.step_time_median_s or 0.0)
    as_quick = [c for c in timed if c.batch_size == quick.batch_size and _may_equal(c, quick)]
    busy = max(main, key=lambda cell: cell.samples_per_s or 0.0)
    as_busy = [c for c in main if c.batch_size == busy.batch_size and _may_equal(c, busy)]
    quick, busy = (min(cells, key=lambda c: _changes(study, c)) for cells in (as_quick, as_busy))
    free, named = without(quick.levels, *fixed), [study.along, *varying_factors(main)]
    others = [cell for cell in good if cell not in main and free.items() <= cell.levels.items()]

    def setting(cell: CellRow) -> str:
        return study.words({name: cell.levels[name] for name in dict.fromkeys(named)})

    def ties(equals: list[CellRow], best: CellRow, value: Callable[[CellRow], str]) -> list[str]:
        others = [cell for cell in equals if cell is not best]
        return [f"{value(c)} with {study.setting_among(c, [c, best])}" for c in others]

    words = sentence(
        "latency",
        quick=setting(quick),
        quick_s=quick.step_time_median_s,
        tail=tail(study, quick),
        as_quick=ties(as_quick, quick, lambda cell: text.seconds(cell.step_time_median_s)),
        busy=setting(busy),
        busy_rate=text.number(busy.samples_per_s),
        as_busy=ties(as_busy, busy, lambda cell: text.number(cell.samples_per_s)),
        same=quick is busy,
        others=[
            f"{text.seconds(cell.step_time_median_s)} with {study.words(changed)}"
            for cell in others
            if len(changed := dict(cell.levels.items() - quick.levels.items())) == 1
        ][:FEW],
    )
    return Statement(words, [quick, busy])


def tail(study: StudyResults, cell: CellRow) -> tuple[float | None, str]:
    """The latency of slow passes, s, and its name: the 99th percentile, or the slowest pass if
    there are too few passes for a percentile."""
    if cell.step_time_p99_s:
        return cell.step_time_p99_s, "one pass in a hundred"
    runs = [run for run in study.runs_of(cell) if run.status == "ok"]
    records = [study.records[run.folder] for run in runs if run.folder in study.records]
    slowest_s = max((r.measurement.step_time_max_s for r in records if r.measurement), default=None)
    passes = sum(run.steps * (run.world_size or 1) for run in runs)
    return slowest_s, f"the slowest of {passes} passes"


def _may_equal(cell: CellRow, best: CellRow) -> bool:
    """Whether a rate may equal the best: their intervals overlap."""
    return cell is best or (cell.ci_high or 0.0) >= (best.ci_low or math.inf)


def _changes(study: StudyResults, cell: CellRow) -> int:
    """The number of levels in which a cell differs from its baseline."""
    baseline = study.study.baseline_of(cell.levels)
    return sum(level != baseline[name] for name, level in cell.levels.items())


def _learning(study: StudyResults, models: Sequence[Scored]) -> Statement:
    """What training adds in the baseline cell, or in the first one; other cells; and bad news."""
    baseline = study.study.baseline
    first = next((each for each in models if each.cell.levels == baseline), models[0])
    record = next((run for run in study.runs_of(first.cell) if run.model), None)
    name, score = next(iter(first.scores.items()))
    low, high = score.gain_low, score.gain_high
    parts = [
        sentence(
            "learning",
            subject=record.model if record else "The model",
            name=NAMES[name][0].lower() + NAMES[name][1:],
            score=score,
            learns=low is not None and low > 0 and _beats_chance(score),
            worse=high is not None and high < 0,
        )
    ]
    seeds = max((each.seeds for each in models if each.seeds is not None), default=None)
    others = []
    for each in models:
        if each is not first and name in each.scores:
            after = each.scores[name].after or 0.0
            equal = seeds is not None and abs(after - (score.after or 0.0)) <= seeds
            setting = study.setting_among(each.cell, [each.cell, first.cell])
            words = f"{text.share(after)} with {setting}"
            others.append(f"{words} (equal within the noise of seeds)" if equal else words)
    if others:
        parts.append(sentence("other_scores", scores=others[:FEW], seeds=seeds))
    poor = [
        (NAMES[metric].partition(", ")[2], score)
        for metric, score in first.scores.items()
        if score.on == "winoground" and not _beats_chance(score)
    ]
    if poor:
        parts.append(sentence("winoground", name=winoground(study), scores=poor))
    return Statement(" ".join(parts), study.runs_of(first.cell))


def _beats_chance(score: Score) -> bool:
    """Whether a score is above that of guesses by more than these vary, at 95%. A model that gives
    one answer to all may begin far below chance: then a gain is no proof."""
    chance = score.chance or 0.0
    return (score.after or 0.0) > chance + 1.96 * math.sqrt(chance * (1 - chance) / (score.n or 1))


def rehearsal(study: StudyResults) -> str:
    """That numbers of a tiny model are no reason to choose hardware; empty for other models."""
    tiny = [run for run in study.runs if run.model.endswith("-tiny") and run.status == "ok"]
    if not tiny:
        return ""
    record = study.records.get(tiny[0].folder)
    return sentence(
        "rehearsal",
        model=tiny[0].model,
        parameters=record.model_parameters if record else None,
        drawn=study.is_drawn(tiny[0].dataset),
    )


def failures(study: StudyResults) -> list[Statement]:
    """Cells that were tried and have no number, or lost some of their runs; those with one cause
    together. Running out of memory is no failure in a study with a memory ladder."""

    def kind(cell: CellRow) -> tuple[str, str, str]:
        return cell.device, cell.status, cause_kind(cell.cause)

    full = "out_of_memory" if study.study.ladder else ""
    failed = [cell for cell in study.tried if cell.status not in ("ok", full)]
    bad = failed + [c for c in study.tried if c.status == "ok" and c.ok_runs < c.runs]
    statements = []
    for (device, status, _), cells in text.grouped(bad, kind).items():
        words = sentence(
            "failed",
            name=f"{study.label(device)}, {names(study, cells)}",
            words=text.STATUS_WORDS[status],
            cause=merge_causes([cell.cause for cell in cells]),
            lost=sum(c.runs - c.ok_runs for c in cells) if status == "ok" else 0,
            runs=sum(cell.runs for cell in cells),
        )
        statements.append(Statement(words, cells))
    return statements


def not_tested(study: StudyResults) -> str:
    """The levels that were planned and that no measured device supports, by what they need, each
    with a device that has it; empty: none."""
    devices = study.plan.project.devices
    able = {need for name in study.devices for need in devices[name].able}
    levels: dict[tuple[str, str], list[str]] = {}
    for name, factor in study.study.factors.items():
        planned = {level_text(cell.levels[name]) for cell in study.plan.unsupported}
        for level, need in factor.requires.items():
            if level in planned and need not in able:
                levels.setdefault((name, need), []).append(level)
    groups = []
    for (name, lacking), of_need in levels.items():
        owner = next((device.label for device in devices.values() if lacking in device.able), "")
        what, words = f"{name} {text.listed(of_need)}", lacking.replace("_", " ")
        needs = "" if words in what else f'needs "{words}"'
        notes = [needs, f"{owner} can" if owner else ""]
        groups.append((what, ", ".join(filter(None, notes))))
    labels = [study.label(name) for name in study.devices]
    return sentence("not_tested", devices=labels, groups=groups) if groups else ""


def published_claim(study: StudyResults) -> list[Statement]:
    """The verdict on the claim that the first screen judges, and the source's contradictions."""
    statements = []
    baseline = study.study.baseline
    # A claim is judged at each measured level of `within`; the source means the baseline's.
    row = min(
        (claim for claim in study.claims if claim.claim == study.study.claim),
        key=lambda row: any(study.study.baseline_of(c.levels) != baseline for c in row.compared),
        default=None,
    )
    if row:
        facts = audit.facts_of_claim(study, row)
        missing = [study.label(d) for d in row.device.split(";") if d not in study.devices]
        words = sentence(
            "claim",
            row=row,
            facts=facts,
            differs=study.words(facts.differs),
            missing=missing,
        )
        statements.append(Statement(words, row.compared))
    against, changed = audit.contradictions(study.plan), audit.changes(study.plan)
    if against or changed:
        first = against[0] if against else ""
        words = sentence("contradictions", count=len(against), first=first, changed=len(changed))
        statements.append(Statement(words))
    return statements


def names(study: StudyResults, cells: Sequence[CellRow]) -> str:
    """Several settings in a sentence, by what differs between them; many are counted."""
    if len(cells) > FEW:
        return text.counted(len(cells), "setting")
    return text.listed(study.setting_among(cell, cells) for cell in cells)
