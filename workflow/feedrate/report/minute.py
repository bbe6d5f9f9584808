"""The page for a reader with one minute: the result of each study, and what to do. Storage, several
numbers of devices and authors' statements have lines of their own."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from operator import attrgetter

from msgspec.structs import asdict

from feedrate.config.values import level_text
from feedrate.report import answers, text
from feedrate.report.answers import Answer
from feedrate.report.findings import failed, failures, outcomes
from feedrate.report.lines import by_device_count
from feedrate.report.markup import Markup, el, record_link, small
from feedrate.report.params import StudySettings
from feedrate.report.rows import CellOf, CellRow, Results, RunRow, rates_of
from feedrate.report.tables.loader_claims import outcome
from feedrate.results.params import STORAGE
from feedrate.results.statistics import (
    CONFIDENCE,
    assumed_noise,
    noise_by_device,
    ratio_interval,
)

LINEAR = 0.9
"""Share of a linear gain from which more devices are worth using."""
RATE = attrgetter("samples_per_s")


def minute(studies: Sequence[StudySettings], results: Mapping[str, Results]) -> Markup:
    """A sentence for each study and device with its value, its verdict and what to do; then how
    many cells failed, and the outcomes of the claims."""
    items = []
    for study in studies:
        found = results[study.study]
        counted = [
            record_link(
                f"{heading}: {outcomes(of)}", *(c for one in of for c in one.compared), at=""
            )
            for heading, of in text.grouped(found.claims, lambda claim: claim.heading).items()
        ]
        bad = failures(study, found.cells)
        words = failed(len(bad)) * bool(bad)
        lost = record_link(words, *(cell for one in bad for cell in one.cells), at="")
        title = el("b", el("a", study.title, href=f"#{study.study}"))
        lines = el("ul", *_lines(study, found))
        items.append(el("li", title, lines, *map(small, (lost, *counted))))
    return el("section", el("h2", "In one minute"), el("ul", *items), class_="minute")


def _line(about: str, value: str, cells: Iterable[CellOf], rest: str) -> Markup:
    """A subject, a value with the cells that it comes from, and the rest with what to do."""
    return el("li", f"{about}: ", record_link(value, *cells, at=""), rest)


def _lines(study: StudySettings, found: Results) -> Iterator[Markup]:
    for device in study.measured:
        mine = [cell for cell in found.cells if cell.device == device]
        yield _of_device(study, mine, device, answer_of(study, found, device))
        if study.loaders and any(cell.status == "ok" for cell in mine):
            yield _statements(study, found, device)
    if any(table.kind == "scaling" for table in study.tables):
        yield _scaling(study, found)


def answer_of(study: StudySettings, found: Results, device: str) -> Answer:
    """The answer for a device: of the storages, where the study compares them; else `answer`."""
    mine = [cell for cell in found.cells if cell.device == device]
    return _storage(study, mine, found.runs) or answers.answer(study, found, device)


def _of_device(
    study: StudySettings, mine: Sequence[CellRow], device: str, answer: Answer
) -> Markup:
    """The answer for a device in one sentence; where the study asks for speed, with the rate."""
    label = study.label(device)
    good = [c for c in mine if c.status == "ok" and c.samples_per_s and not c.measured_as]
    stored = any(factor.sets == STORAGE for factor in study.factors.values())
    other = answers.is_about_quality(study) or answers.ladder_factor(study) or stored
    words = answer.headline.removeprefix(f"{label}: ")
    if study.task == "training" and not other:
        tried = [c for c in mine if c.status != "unsupported" and not c.measured_as]
        alone = len(good) == len(tried) == 1
        best = good[0] if alone else answers.recommended_cell(study, mine, device)
        if best:
            limit = best.verdict if best.verdict in answers.TO_DO else "its limit undecided"
            where = f"{answers.name_of(study, best)}{best.basis}"
            rest = f" with {where}, {limit}: use it, and {_lower(answers.next_step(best))}"
            return _line(label, _with_interval(best), [best], rest)
        if undecided := answers.left_open(good, device):
            between = list(undecided.values())[-1]  # the ones in the answer
            slow, fast = (pick(between, key=RATE) for pick in (min, max))
            value = f"{text.number(slow.samples_per_s)} to {text.rate(fast.samples_per_s)}"
            rest = f"{fast.basis}, {words.rstrip('.')}: {_lower(answer.to_do)}"
            return _line(label, value, [slow, fast], rest)
    detail = f" {answer.detail}" * (stored or not answer.found)
    return _line(label, words.rstrip("."), answer.cells, f".{detail} {answer.to_do}")


def _storage(
    study: StudySettings, mine: Sequence[CellRow], runs: Sequence[RunRow]
) -> Answer | None:
    """The share of the baseline storage's rate that each other one reaches, each with its fastest
    setting. None where no storage, or no other, has a valid cell."""
    factor = next((name for name, one in study.factors.items() if one.sets == STORAGE), None)
    if not factor:
        return None
    good = [cell for cell in mine if cell.status == "ok" and cell.samples_per_s]
    groups = text.grouped(good, lambda cell: level_text(cell.levels[factor]))
    best = {level: max(group, key=RATE) for level, group in groups.items()}
    usual = level_text(study.baseline[factor])
    base = best.pop(usual, None)
    if not best:
        return None
    if base is None:  # storages are not alternatives
        why = f"No cell with {factor} = {usual} has a valid result."
        head, to_do = "no answer yet.", "Remove the cause and run the study again."
        return Answer(f"{study.label(good[0].device)}: {head}", why, to_do, mine, found=False)

    others = partial(_others, factor)

    def at_first(group: Sequence[CellRow], best: CellRow) -> str:
        """The share that the baseline's other settings reach with the storage of `best`."""
        levels = study.baseline | {factor: best.levels[factor]}
        first = next((c for c in group if c is not best and c.levels == levels), None)
        share = text.share(RATE(first) / RATE(base)) if first else ""
        return f", and {share}{others(first, ' with ')}" if first else ""

    reached = "; ".join(
        f"{factor} = {level}{' ms' * (not isinstance(cell.levels[factor], str))} reaches "
        f"{text.share(RATE(cell) / RATE(base))} of that rate{others(cell, ', with ')}: "
        f"{_with_interval(cell)}{at_first(groups[level], cell)}"
        for level, cell in best.items()
    )
    shown = [base, *best.values()]
    detail = f"{reached}.{' Single runs have no interval.' * any(c.ci_low is None for c in shown)}"
    rate = f"{_with_interval(base)} with {factor} = {usual}{others(base, ' and ')}."
    to_do = _slower_storages(study, factor, base, best, runs)
    return Answer(f"{study.label(base.device)}: {rate}", detail, to_do, shown)


def _others(factor: str, cell: CellRow, before: str) -> str:
    """The cell's levels of other factors after the words `before`; empty where it has none."""
    names = text.levels_text({k: v for k, v in cell.levels.items() if k != factor})
    return before + names if names else ""


def _slower_storages(
    study: StudySettings,
    factor: str,
    base: CellRow,
    best: Mapping[str, CellRow],
    runs: Sequence[RunRow],
) -> str:
    """What to do about the storages whose best cell is slower than that of the baseline's by the
    study's smallest effect. The intervals of all ratios hold together."""
    noise = noise_by_device(map(asdict, runs)).get((base.study, base.device))
    blocks = [cell.block_noise for cell in (base, *best.values())]
    noise = noise or assumed_noise(study.noise_share, blocks)
    above, matters = rates_of(base, runs, "samples_per_s"), 1 + study.smallest_effect
    slower, unsure = list[str](), list[str]()
    for level, cell in best.items():
        rates = above, rates_of(cell, runs, "samples_per_s")
        ratio, low, high = ratio_interval(*rates, CONFIDENCE, noise, len(best))
        if (high or ratio) >= matters:
            (slower if (low or ratio) > 1 else unsure).append(level)
    if slower:
        basis = max(one.basis for one in (base, *(best[level] for level in slower)))
        slow = f"{factor} = {text.listed(slower)}{basis}"
        return f"Use faster storage: no setting here hides the delay of {slow}."
    if unsure:
        usual = level_text(base.levels[factor])
        undecided = f"Undecided: the runs cannot rank {text.listed(unsure)} against {usual}."
        return f"{undecided} Repeat them."
    return f"Nothing to do: none is slower by {100 * study.smallest_effect:.3g}% or more."


def _statements(study: StudySettings, found: Results, device: str) -> Markup:
    mine = [cell for cell in found.cells if cell.device == device]
    runs = [run for run in found.runs if (run.device, run.status) == (device, "ok")]
    said = [outcome(claim, runs, mine, study.claim_tolerance) for claim in study.loaders]
    words = ("Holds with", "Holds only", "Does not hold")
    hold, partly, fail = (sum(one.startswith(word) for one in said) for word in words)
    to_do = "Nothing to do: none of them fails here."
    if fail or partly:
        to_do = "Choose a loader by the rates measured here, not by its authors' numbers."
    elif not hold:
        to_do = "Undecided: the table of these statements gives the reasons."
    some = f", {partly} with some numbers of workers only" * bool(partly)
    value = f"{hold} of {len(said)} confirmed here{some}, {fail} refuted"
    value += ", from single runs" * any("single runs" in one for one in said)
    about = f"{study.label(device)}, statements of loaders' authors"
    return _line(about, value, mine, f". {to_do}")


def _scaling(study: StudySettings, found: Results) -> Markup:
    """The gain from the fewest to the most devices: at the baseline, else at the first cell that
    was measured on several numbers of devices. The noise is the larger one of both devices."""
    groups = [one for one in by_device_count(study, found.cells).values() if len(one) > 1]
    if not groups:
        why = "no setting has results on several numbers of devices. Measure one on more devices."
        return _line("Scaling", "", (), why)
    group = min(groups, key=lambda one: one[min(one)].levels != study.baseline)
    few, many = min(group), max(group)
    pair = [group[many], group[few]]
    noises = noise_by_device(map(asdict, found.runs))
    known = list(filter(None, (noises.get((one.study, one.device)) for one in pair)))
    above, below = (rates_of(one, found.runs, "samples_per_s") for one in pair)
    gain, low, high = ratio_interval(above, below, CONFIDENCE, max(known, default=None))
    both = len(known) == len(pair)  # repeats on one device say nothing about another
    interval = text.ratio_interval(low, high) if both else "no interval: single runs"
    share = gain * few / many
    to_do = f"Use {text.counted(many, 'device')}."
    if share < LINEAR:
        to_do = f"Look for what limits {text.counted(many, 'device')} in the table of scaling."
    where = f"from {few} to {many} devices with {answers.name_of(study, group[many])}"
    rest = f" {where}, {text.share(share)} of linear. {to_do}"
    value = text.with_remark(text.ratio(gain), interval)
    return _line("Scaling", value, [group[few], group[many]], rest)


def _with_interval(cell: CellRow) -> str:
    return text.with_interval(cell.samples_per_s, cell.ci_low, cell.ci_high, "samples/s")


def _lower(sentence: str) -> str:
    return sentence[:1].lower() + sentence[1:]
