"""What a reader with one minute is told: the result of each device, and what to do. Several numbers
of devices have a line of their own."""

from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import NamedTuple

from msgspec.structs import asdict

from feedrate.report import answers, text
from feedrate.report.answers import Answer
from feedrate.report.context import StudyContext
from feedrate.report.lines import by_device_count
from feedrate.report.rows import CellOf, CellRow, Results, rates_of
from feedrate.results.statistics import CONFIDENCE, noise_by_device, ratio_interval

LINEAR = 0.9
"""Share of a linear gain from which more devices are worth using."""


class Line(NamedTuple):
    """A subject, a value with the cells that it comes from, and the rest with what to do."""

    about: str
    value: str
    cells: Sequence[CellOf]
    rest: str


def minute(study: StudyContext, found: Results) -> Iterator[Line]:
    """A sentence for each device with its value, its verdict and what to do."""
    for device in study.measured:
        mine = [cell for cell in found.cells if cell.device == device]
        yield _of_device(study, mine, device, answers.answer(study, found, device))
    if any(table.kind == "scaling" for table in study.tables):
        yield _scaling(study, found)


def _of_device(study: StudyContext, mine: Sequence[CellRow], device: str, answer: Answer) -> Line:
    """The answer for a device in one sentence; where the study asks for speed, with the rate."""
    label = study.label(device)
    good = [c for c in mine if c.status == "ok" and c.samples_per_s and not c.measured_as]
    other = answers.is_about_quality(study) or answers.ladder_factor(study)
    words = answer.headline.removeprefix(f"{label}: ")
    if study.task == "training" and not other:
        tried = [c for c in mine if c.status != "unsupported" and not c.measured_as]
        alone = len(good) == len(tried) == 1
        best = good[0] if alone else answers.recommended_cell(study, mine, device)
        if best:
            limit = best.verdict if best.verdict in answers.TO_DO else "its limit undecided"
            where = f"{answers.name_of(study, best)}{best.basis}"
            rest = f" with {where}, {limit}: use it, and {_lower(answers.next_step(best))}"
            rate = text.with_interval(best.samples_per_s, best.ci_low, best.ci_high, "samples/s")
            return Line(label, rate, [best], rest)
        if undecided := answers.left_open(good, device):
            between = list(undecided.values())[-1]  # the ones in the answer
            slow, fast = (pick(between, key=attrgetter("samples_per_s")) for pick in (min, max))
            value = f"{text.number(slow.samples_per_s)} to {text.rate(fast.samples_per_s)}"
            rest = f"{fast.basis}, {words.rstrip('.')}: {_lower(answer.to_do)}"
            return Line(label, value, [slow, fast], rest)
    detail = "" if answer.found else f" {answer.detail}"
    return Line(label, words.rstrip("."), answer.cells, f".{detail} {answer.to_do}")


def _scaling(study: StudyContext, found: Results) -> Line:
    """The gain from the fewest to the most devices: at the baseline, else at the first cell that
    was measured on several numbers of devices. The noise is the larger one of both devices."""
    groups = [one for one in by_device_count(study, found.cells).values() if len(one) > 1]
    if not groups:
        why = "no setting has results on several numbers of devices. Measure one on more devices."
        return Line("Scaling", "", (), why)
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
    return Line("Scaling", text.with_remark(text.ratio(gain), interval), pair[::-1], rest)


def _lower(sentence: str) -> str:
    return sentence[:1].lower() + sentence[1:]
