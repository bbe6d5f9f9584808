"""What a page says about a study: the facts of each sentence, from rows of results. The words are
in report/templates/sentences.j2."""

from collections.abc import Iterator, Sequence
from statistics import mean
from typing import NamedTuple

from msgspec.structs import asdict

from feedrate.config.values import level_text, parse_levels
from feedrate.report import audit, text
from feedrate.report.html import sentence
from feedrate.report.rows import AnswerRow, CellOf, CellRow
from feedrate.report.study import Line, StudyResults
from feedrate.results.answers import LIVE_MODEL
from feedrate.results.conformity import DISTURBED, cause_kind, merge_causes
from feedrate.results.record import Score
from feedrate.results.statistics import REPEATABILITY, noise_by_device

ACCURACIES = ("matching_accuracy", "accuracy")
"""The scores that stand for a model: the first that it has."""
WINOGROUND = ("text_score", "image_score", "group_score")
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
    # Other programs slow a run down; they do not change what the model learns.
    scored = [c for c in tried if c.samples_per_s or c.provisional_samples_per_s]
    if study.asks == "learning" and (learned := _learning(study, scored)):
        return learned
    if not good:
        return _no_answer(study, device, tried)
    if study.asks == "largest":
        return _largest(study, device)
    if study.asks == "latency":
        return _latency(study, good)
    answer = study.answer(device)
    if answer is None:
        return _no_answer(study, device, tried)
    return _speed(study, answer)


def _no_answer(study: StudyResults, device: str, tried: Sequence[CellRow]) -> Statement:
    runs = [run for cell in tried for run in study.runs_of(cell)]
    checks = [set(run.failed_checks.split(";")) for run in runs if run.status == "invalid"]
    words = sentence(
        "no_answer",
        tried=bool(tried),
        failed=len(tried),
        full=bool(tried) and all(cell.status == "out_of_memory" for cell in tried),
        disturbed=bool(checks) and len(checks) == len(runs) and all(c <= DISTURBED for c in checks),
        unsupported=any(cell.device == device for cell in study.cells),
    )
    return Statement(words, tried)


def _speed(study: StudyResults, answer: AnswerRow) -> Statement:
    cell = study.cell(answer.device, answer.levels)
    use = study.setting(answer.levels)
    gain_words = sentence("loader_gain", low=answer.limit_gain_low, high=answer.limit_gain_high)
    if answer.compared < 2 or cell is None:
        words = sentence("alone", use=use, rate=text.number(answer.samples_per_s))
        return Statement(f"{words} {gain_words}".strip(), [answer])
    baseline = study.baseline_cell(cell)
    is_baseline = answer.cell == answer.baseline
    words = sentence(
        "speed",
        use=use,
        rate=text.number(answer.samples_per_s),
        baseline="" if is_baseline else study.setting_of_baseline(cell),
        gain=text.percent((cell.speedup or 1.0) - 1) + "%",
        at_least=None if baseline is None or not baseline.ok_runs else answer.gain_at_least,
        at_most=answer.loss_at_most,
        nearest=study.setting(parse_levels(answer.nearest, "~")) if answer.nearest else "",
        nearest_change=_range(answer.nearest_low, answer.nearest_high),
        more_repeats=answer.more_repeats or 0,
        smallest=study.study.thresholds.smallest_effect,
        single=answer.single,
    )
    cells = [answer] if baseline is None or is_baseline else [answer, baseline]
    return Statement(f"{words} {gain_words}".strip(), cells)


def _range(low: float | None, high: float | None) -> str:
    if low is None or high is None:
        return "single runs"
    return f"{text.signed_percent(low - 1)} to {text.signed_percent(high - 1)}"


def conclusion(study: StudyResults, answer: AnswerRow) -> str:
    """The answer of a device as the title of its figure."""
    return sentence(
        "conclusion",
        use=study.setting(answer.levels),
        at_least=answer.gain_at_least if answer.compared > 1 else None,
        baseline="" if answer.cell == answer.baseline else study.setting_of_baseline(answer),
        low=answer.limit_gain_low,
        high=answer.limit_gain_high,
    )


def _largest(study: StudyResults, device: str) -> Statement:
    """The line with the largest level that fits; of several, the fastest one."""
    factor = study.along
    order = study.study.factors[factor].texts
    lines = [line for line in study.lines(factor) if line.device == device and line.ok]

    def reach(line: Line) -> tuple[int, float]:
        last = line.ok[-1]
        return order.index(level_text(last.levels[factor])), last.samples_per_s or 0.0

    line = max(lines, key=reach)
    largest, fastest = line.ok[-1], max(line.ok, key=lambda cell: cell.samples_per_s or 0.0)
    beyond = line.cells[line.cells.index(largest) + 1 :]
    full = next((cell for cell in beyond if cell.status == "out_of_memory"), None)
    memory = largest.peak_memory_gib
    words = sentence(
        "largest",
        level=level_text(largest.levels[factor]),
        label=study.factor_label(factor),
        others=text.levels_text(line.others),
        rate=text.number(largest.samples_per_s),
        memory=f"{text.number(memory)} GiB" if memory else "",
        fast_level="" if fastest is largest else level_text(fastest.levels[factor]),
        fast_rate=text.number(fastest.samples_per_s),
        beyond_failed=bool(beyond),
        out_of_memory=level_text(full.levels[factor]) if full else "",
    )
    return Statement(words, [largest])


def _latency(study: StudyResults, good: Sequence[CellRow]) -> Statement:
    """Of the cells at the baseline's level of the first factor, if it has any."""
    first = next(iter(study.study.factors))
    main = [c for c in good if c.levels[first] == study.study.baseline[first]] or good
    quick = min(main, key=lambda cell: cell.step_time_median_s or 0.0)
    busy = max(main, key=lambda cell: cell.samples_per_s or 0.0)
    several = len({level_text(cell.levels[first]) for cell in good}) > 1
    words = sentence(
        "latency",
        where=f"With {first} = {level_text(main[0].levels[first])}: " if several else "",
        quick=study.setting(quick.levels),
        quick_s=quick.step_time_median_s,
        quick_p99_s=quick.step_time_p99_s,
        busy=study.setting(busy.levels),
        busy_rate=text.number(busy.samples_per_s),
        same=quick is busy,
    )
    return Statement(words, [quick, busy])


def _learning(study: StudyResults, cells: Sequence[CellRow]) -> Statement | None:
    """What training adds in the baseline cell, or in the first one with scores; and bad news."""
    scored = [(cell, score) for cell in cells if (score := _accuracy(study, cell))]
    if not scored:
        return None
    baseline = study.study.baseline
    cell, score = next((pair for pair in scored if pair[0].levels == baseline), scored[0])
    record = next((run for run in study.runs_of(cell) if run.model), None)
    parts = [
        sentence(
            "learning",
            subject=record.model if record else "The model",
            before=score.before,
            after=score.after,
            chance=score.chance,
            low=score.gain_low,
            high=score.gain_high,
        )
    ]
    poor = []
    for metric in WINOGROUND:
        other = study.score(cell, "winoground", metric)
        if other and other.after is not None and other.after <= (other.chance or 0.0):
            name = metric.removesuffix("_score")
            poor.append(f"{name} {text.share(other.after)} (chance {text.share(other.chance)})")
    if poor:
        parts.append(sentence("winoground", name=study.winoground, scores=poor))
    parts.append(sentence("loader_gain", low=cell.gain_low, high=cell.gain_high))
    return Statement(" ".join(filter(None, parts)), [cell])


def _accuracy(study: StudyResults, cell: CellRow) -> Score | None:
    scores = (study.score(cell, "test", metric) for metric in ACCURACIES)
    return next((score for score in scores if score and score.after is not None), None)


def failures(study: StudyResults) -> list[Statement]:
    """Cells that were tried and have no number, or lost some of their runs; those with one cause
    together. Running out of memory is no failure in a study with a memory ladder."""

    def kind(cell: CellRow) -> tuple[str, str, str]:
        return cell.device, cell.status, cause_kind(cell.cause)

    full = "out_of_memory" if study.study.ladder else ""
    bad = [c for c in study.tried if c.status not in ("ok", full) or c.ok_runs < c.runs]
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
    """The levels that no measured device supports, by what they need; empty: none."""
    devices = study.plan.project.devices
    able = [devices[name].able for name in study.devices]
    lacking: dict[str, dict[str, list[str]]] = {}
    for name, factor in study.study.factors.items():
        for level, need in factor.requires.items():
            if level in factor.texts and not any(need in each for each in able):
                owners = [device.label for device in devices.values() if need in device.able]
                needs = " or ".join(owners[:3]) or f"the capability {need}"
                lacking.setdefault(needs, {}).setdefault(name, []).append(level)
    groups = []
    for needs, factors in lacking.items():
        words = [
            f"{name} = {text.listed(levels[:2])}"
            + (f" and {len(levels) - 2} more" if len(levels) > 2 else "")
            for name, levels in factors.items()
        ]
        groups.append((text.listed(words), needs))
    return sentence("not_tested", groups=groups, study=study.name) if groups else ""


def published_claim(study: StudyResults) -> list[Statement]:
    """The verdict on the claim that the first screen judges, and the source's contradictions."""
    statements = []
    row = next((claim for claim in study.claims if claim.claim == study.study.claim), None)
    if row:
        facts = audit.facts_of_claim(study, row)
        missing = [study.label(d) for d in row.device.split(";") if d not in study.devices]
        words = sentence(
            "claim",
            statement=row.statement,
            printed=facts.printed,
            recomputed=facts.recomputed,
            agrees=facts.agrees,
            equal=facts.equal,
            differs=text.levels_text(facts.differs),
            mfu=[f"{label} runs at {text.share(mfu)} of its peak" for label, mfu in facts.mfu],
            warmup_inside=facts.warmup_inside,
            measured=row.measured,
            verdict=row.verdict,
            missing=missing,
        )
        statements.append(Statement(words, row.compared))
    if found := audit.contradictions(study.plan):
        words = sentence("contradictions", count=len(found), first=found[0].text)
        statements.append(Statement(words))
    return statements


def reasons(study: StudyResults) -> Iterator[Statement]:
    """The sentences of the part "why": answers at other levels, limits by setting, losses."""
    for device in study.devices:
        for answer in study.answers:
            is_first = answer == study.answer(device)
            if answer.device == device and not is_first and study.asks == "speed":
                label = f"{study.label(device)}: " if len(study.devices) > 1 else ""
                yield Statement(label + _speed(study, answer).text, [answer])
        good = [c for c in study.tried if c.device == device and c.limit]
        groups = text.grouped(good, lambda cell: cell.limit)
        limits = [(limit, names(study, cells)) for limit, cells in groups.items()]
        if limits:
            label = f"{study.label(device)}: " if len(study.devices) > 1 else ""
            yield Statement(label + sentence("limits", groups=limits), good)
    own = [cell for cell in study.tried if cell.loss_shift is not None]
    equal = [cell for cell in own if cell.loss_identical]
    differing = [cell for cell in own if cell.loss_departs]
    if equal or differing:
        words = [study.setting(cell.levels) for cell in differing]
        yield Statement(
            sentence("equal_losses", settings=len(equal), differing=words), [*equal, *differing]
        )


def remarks(study: StudyResults) -> Iterator[Statement]:
    """The sentences of the part "method and noise"."""
    if any(answer.measure == LIVE_MODEL for answer in study.answers):
        yield Statement(sentence("measure"))
    repeated = [cell for cell in study.tried if cell.ok_runs > 1]
    for (_, device), noise in noise_by_device(map(asdict, study.runs)).items():
        mine = [cell for cell in repeated if cell.device == device]
        if noise and mine:
            runs = text.listed(str(n) for n in sorted({cell.ok_runs for cell in mine}))
            share = noise.sd * REPEATABILITY
            yield Statement(sentence("noise", sd_share=share, repeats=runs, cells=len(mine)), mine)
    disturbed = text.grouped((c for c in study.tried if c.disturbed), lambda c: c.disturbed)
    for cause, cells in disturbed.items():
        yield Statement(sentence("disturbed", settings=[names(study, cells)], causes=cause), cells)
    if short := [cell for cell in study.tried if cell.short_epochs]:
        words = [f"{study.setting(c.levels)} ({c.steps_per_epoch})" for c in short]
        yield Statement(sentence("short_epochs", settings=words), short)
    yield from _mixed_software(study)
    evaluated = [run for run in study.runs if run.evaluation_s and not run.measured_as]
    if evaluated:
        mean_s = mean(run.evaluation_s for run in evaluated)
        yield Statement(sentence("evaluation", mean_s=mean_s, runs=len(evaluated)), evaluated)


def _mixed_software(study: StudyResults) -> Iterator[Statement]:
    """The settings whose ok runs differ in their driver or packages."""
    mixed, changed = list[CellRow](), set[str]()
    for cell in study.tried:
        runs = [run for run in study.runs_of(cell) if run.status == "ok"]
        records = [study.records[run.folder] for run in runs if run.folder in study.records]
        machines = [record.provenance for record in records if record.provenance.packages]
        software = [each.packages | {"the driver": each.driver} for each in machines]
        every = {name for packages in software for name in packages}
        differ = {n for n in every if len({packages.get(n) for packages in software}) > 1}
        if differ:
            mixed.append(cell)
            changed |= differ
    if mixed:
        words = [study.setting(cell.levels) for cell in mixed]
        yield Statement(sentence("mixed_software", packages=sorted(changed), settings=words), mixed)


def names(study: StudyResults, cells: Sequence[CellRow]) -> str:
    """Several settings in a sentence; many are counted."""
    if len(cells) > FEW:
        return text.counted(len(cells), "setting")
    return text.listed(study.setting(cell.levels) for cell in cells)
