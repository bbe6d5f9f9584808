"""What the first screen of a study says: the facts of each sentence, from rows of results.
The words are in report/templates/sentences.j2."""

import math
from collections.abc import Callable, Sequence
from typing import Any

from feedrate.config.values import level_text
from feedrate.report import text
from feedrate.report.html import FEW, Statement, sentence
from feedrate.report.rows import AnswerRow, CellRow, Line, varying_factors, without
from feedrate.report.scores import learning, scored
from feedrate.report.study import StudyResults
from feedrate.results.answers import LIVE_MODEL
from feedrate.results.conformity import DISTURBED, cause_kind, merge_causes
from feedrate.results.schema import BAD


def answers(study: StudyResults) -> list[Statement]:
    """The answer for each device: what to use, or what fits, or what training adds."""
    return [_answer(study, device)._replace(device=study.label(device)) for device in study.devices]


def _answer(study: StudyResults, device: str) -> Statement:
    tried = [cell for cell in study.tried if cell.device == device]
    good = [cell for cell in tried if cell.samples_per_s is not None]
    models = [each for each in scored(study) if each.cell.device == device]
    if study.asks == "learning" and models:
        return learning(study, models)
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
    loader_gain = sentence("loader_gain", low=answer.limit_gain_low, high=answer.limit_gain_high)
    if answer.compared < 2 or cell is None:
        words = sentence("alone", use=use, rate=rate)
        return Statement(f"{words} {loader_gain}".strip(), [answer])
    baseline = study.baseline_cell(cell)
    bad = [other for other in study.tried if other.device == cell.device and other.status in BAD]
    words = sentence(
        "speed",
        use=use,
        rate=rate,
        gain=_gain(study, answer, cell),
        rivals=rivals(study, answer),
        lacking=any(study.baseline_cell(other) is baseline for other in bad),
    )
    is_baseline = answer.cell == answer.baseline
    cells = [answer] if baseline is None or is_baseline else [answer, baseline]
    return Statement(f"{words} {loader_gain}".strip(), cells)


def _gain(study: StudyResults, answer: AnswerRow, cell: CellRow) -> dict[str, Any]:
    """The facts about what the cell to use gains over its baseline."""
    baseline = study.baseline_cell(cell)
    return {
        "baseline": "" if baseline is cell else study.setting_of_baseline(cell),
        "share": text.percent((cell.speedup or 1.0) - 1) + "%",
        "at_least": answer.gain_at_least if baseline and baseline.ok_runs else None,
        "drift_removed": study.by_share(answer.device),
    }


def rivals(study: StudyResults, answer: AnswerRow) -> dict[str, Any]:
    """The facts about the settings that could be faster than the one to use. Where they differ from
    it by their loaders alone, the gain of a perfect loader bounds theirs."""
    thresholds, perfect = study.study.thresholds, answer.limit_gain_high
    by_loader = answer.measure == LIVE_MODEL and perfect is not None
    names = filter(None, answer.equals.split(";"))
    equals = [cell for name in names if (cell := study.cell_named(answer.device, name))]
    nearest = study.cell_named(answer.device, answer.nearest)
    setting = study.setting(nearest.levels) if nearest else ""
    words = [study.setting_among(cell, equals) for cell in equals]
    if len(equals) > FEW:
        words = [f"{len(equals)} settings, such as {setting}"]
    return {
        "at_most": answer.other_gain_at_most,
        "bounded": by_loader and perfect <= answer.other_gain_at_most,
        "equals": text.listed(words),
        "faster": setting if nearest and answer.nearest_low > 1 else "",
        "more_repeats": answer.more_repeats or 0,
        "smallest": thresholds.smallest_effect,
        "confidence": thresholds.confidence,
        "noise": thresholds.noise_share if answer.single else None,
    }


def largest(study: StudyResults, lines: Sequence[Line], answer: AnswerRow | None) -> Statement:
    """Of lines with a rate, the one with the largest level that fits; of several, the fastest. Then
    what to use for speed, which is the answer or, without one, the fastest cell."""
    factor, lines = study.along, [line for line in lines if line.ok]
    order = study.study.factors[factor].texts

    def level(cell: CellRow) -> str:
        return level_text(cell.levels[factor])

    def reach(line: Line) -> int:
        return order.index(level(line.ok[-1]))

    apart = study.varied.intersection(study.study.within) - {factor}
    line = max(lines, key=lambda line: (reach(line), line.ok[-1].samples_per_s))
    last, beyond = line.ok[-1], line.cells[line.cells.index(line.ok[-1]) + 1 :]
    equals = [each.ok[-1] for each in lines if reach(each) == reach(line) and each is not line]
    use = study.cell(answer.device, answer.levels) if answer else None
    if use is None:
        use = max((c for each in lines for c in each.ok), key=lambda cell: cell.samples_per_s)
    settings = {n: level for n, level in use.levels.items() if n in study.varied - apart}
    # The setting that readers know: the baseline's, at the level where it is fastest.
    base = study.study.baseline_of(last.levels)
    of_base = (each.fastest for each in lines if each.others == without(base, factor))
    usual = next((c for c in of_base if c and c.samples_per_s < use.samples_per_s), None)
    unsupported = [c for c in study.cells if (c.device, c.status) == (line.device, "unsupported")]
    words = sentence(
        "largest",
        where=study.words({name: last.levels[name] for name in sorted(apart)}),
        level=level(last),
        label=study.factor_label(factor),
        others=study.words(without(line.others, *apart)),
        equals=names(study, equals) if equals else "",
        rate=text.with_interval(last.samples_per_s, last.ci_low, last.ci_high),
        memory=f"{text.number(last.peak_memory_gib)} GiB" if last.peak_memory_gib else "",
        use="" if use is last else study.words(settings),
        use_rate=text.number(use.samples_per_s),
        usual=study.words(without(usual.levels, *apart, factor)) if usual else "",
        usual_rate=text.number(usual.samples_per_s if usual else None),
        more=f"{text.percent(use.samples_per_s / usual.samples_per_s - 1)}%" if usual else "",
        rivals=rivals(study, answer) if answer else None,
        tried=len({level(c) for each in lines for c in each.cells if c.status != "missing"}),
        beyond_failed=any(cell.status != "missing" for cell in beyond),
        beyond_missing=any(cell.status == "missing" for cell in beyond),
        out_of_memory=level(line.too_large) if line.too_large else "",
        beyond_unsupported=any(order.index(level(c)) > reach(line) for c in unsupported),
    )
    return Statement(words, [last, use])


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
    quick, busy = (min(cells, key=lambda c: study.changes(c)) for cells in (as_quick, as_busy))
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


def other_levels(study: StudyResults) -> str:
    """The factors whose other levels have answers of their own, below the first screen."""
    shown = [study.answer(device) for device in study.devices]
    has_more = study.asks in ("speed", "largest") and any(a not in shown for a in study.answers)
    return text.listed(map(study.factor_label, study.study.within)) if has_more else ""


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


def excluded(study: StudyResults) -> str:
    """The levels that the study excludes on all measured devices, with its reasons; empty: none."""
    reasons: dict[tuple[str, str], str] = {}
    for part in study.study.exclude:
        name, level = next(iter(part.levels.items()))
        if len(part.levels) == 1 and all(cell.levels[name] != level for cell in study.cells):
            reasons.setdefault((name, level_text(level)), part.why)
    groups = text.grouped(reasons, lambda pair: (pair[0], reasons[pair]))
    words = []
    for (name, why), pairs in groups.items():
        levels = [level for _, level in pairs]
        more = [f"{len(levels) - FEW} more"] if len(levels) > FEW else []
        listed = text.listed([*levels[:FEW], *more])
        words.append((f"{name} {listed}", text.uncapital(why.rstrip("."))))
    return sentence("excluded", groups=words) if words else ""


def names(study: StudyResults, cells: Sequence[CellRow]) -> str:
    """Several settings in a sentence, by what differs between them; many are counted."""
    if len(cells) > FEW:
        return text.counted(len(cells), "setting")
    return text.listed(study.setting_among(cell, cells) for cell in cells)
