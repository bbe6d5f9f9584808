"""The answer of a study for one device: a headline, and a sentence with the numbers behind it."""

from collections.abc import Sequence
from typing import NamedTuple

from feedrate.config.values import level_text
from feedrate.report import text
from feedrate.report.context import StudyContext
from feedrate.report.limits import named
from feedrate.report.lines import Line, differing, ladder_lines, notable
from feedrate.report.rows import CellOf, CellRow, Results, RunRow, ScoreRow
from feedrate.report.scores import MATCHING, cells_of, pick
from feedrate.results.record import Score
from feedrate.results.verdicts import UNSURE


class Answer(NamedTuple):
    """The answer for one device; `found` is false where the results give none."""

    headline: str
    detail: str
    to_do: str
    cells: Sequence[CellOf] = ()  # those whose records the headline rests on
    found: bool = True


VERDICTS = {
    "input-bound": "This setting is input-bound: data loading limits it.",
    "compute-bound": "This setting is compute-bound: it hardly waits for data.",
    "memory-limited": "This setting is memory-limited: the device's memory is nearly full.",
    "launch-bound": "This setting is launch-bound: the host launches work too slowly.",
    "core-bound": "This setting is core-bound: loader and model share too few CPU cores.",
    "rank-bound": "This setting is rank-bound: one rank holds up the others.",
    "communication-bound": "This setting is communication-bound: exchanging gradients slows it.",
}
"""The meaning of a verdict for the user of a setting."""
TO_DO = {
    "input-bound": "Try faster loading before a faster device.",
    "compute-bound": "Keep the loader: the device hardly waits for it.",
    "memory-limited": "Free memory before you increase the batch size.",
    "launch-bound": "Try compiling the model, or a larger batch.",
    "core-bound": "Try more CPU cores.",
    "rank-bound": "Find what slows that rank.",
    "communication-bound": "Try exchanging gradients less often, or over a faster link.",
    "mixed": "Read the figures behind its verdict: no single cause limits it.",
}
"""What to do next, by the verdict of the recommended setting. A verdict does not say what would
help."""
NOISY = "Repeat it: noise hides what limits it."
NOT_DECIDED = "Read the figures behind its verdict: they do not decide what limits it."
REPEAT = "Repeat them more often (repeats in config.yaml)."
TOO_NOISY = (
    "Measure on a quieter machine, or use the simplest of them: repeats alone hardly decide."
)
MANY_REPEATS = 12
"""More repeats of a cell than these take too long."""
FREE_MEMORY = "Free memory, or choose a smaller model."
NOT_COMPARED = "Nothing to choose: the study does not compare the rates of these settings."


def answer(study: StudyContext, found: Results, device: str) -> Answer:
    """The setting to use on a device; in a study of quality, the effect of training."""
    label, cells = study.label(device), found.cells
    mine = [cell for cell in cells if cell.device == device]
    tried = [cell for cell in mine if cell.status != "unsupported" and not cell.measured_as]
    good = [cell for cell in tried if cell.status == "ok"]
    full = bool(tried) and all(cell.status == "out_of_memory" for cell in tried)
    if (good or full) and (factor := ladder_factor(study)):
        return _largest_that_fits(study, cells, factor, device)
    if is_about_quality(study) and (gains := training_gains(study, found, device)):
        change, to_do, cell = gains[0]
        return Answer(f"{label}: {change}.", _rates(study, good), to_do, [cell])
    if best := recommendation(study, cells, device):
        use = f"{label}: use {name_of(study, best)}{best.basis}."
        return Answer(use, _throughput(study, best), next_step(best), [best])
    if not is_about_quality(study) and (undecided := left_open(good, device)):
        why, between = list(undecided.items())[-1]
        # Of cells with unequal runs, the one with the fewest adds up to the repeats that decide.
        needed = min(cell.ok_runs + (cell.repeats_to_decide or 1) for cell in between)
        to_do = TOO_NOISY if needed > MANY_REPEATS else REPEAT
        undecided_between = f"{label}: undecided between {named(study, between)}."
        return Answer(undecided_between, why, to_do, between)
    if not good:
        why, to_do = _no_answer(mine, tried)
        return Answer(f"{label}: no answer yet.", why, to_do, tried, found=False)
    if study.task == "inference":
        return _latency_and_throughput(study, good)
    if len(tried) == 1:
        one, only = good[0], text.levels_text(good[0].levels)
        detail = f"{only} is the only setting that was tried. {VERDICTS.get(one.verdict, '')}"
        headline = f"{label}: training throughput is {text.rate(one.samples_per_s)}{one.basis}."
        return Answer(headline, detail.strip(), next_step(one), good)
    return Answer(f"{label}: no setting is recommended.", _rates(study, good), NOT_COMPARED, good)


def next_step(cell: CellRow) -> str:
    """What to do about the limit of a setting. Repeats help only where noise hides it."""
    return TO_DO.get(cell.verdict, NOISY if UNSURE in cell.why else NOT_DECIDED)


def name_of(study: StudyContext, cell: CellRow) -> str:
    """A cell's name in a sentence."""
    return text.levels_text(notable(study, cell.levels))


def ladder_factor(study: StudyContext) -> str | None:
    """The factor whose largest level is the study's question; None for any other question."""
    factors = [table.factor for table in study.tables if table.kind == "largest"]
    return next((factor for factor in factors if factor in study.ladder), None)


def is_about_quality(study: StudyContext) -> bool:
    """Whether the study asks for the effect of training and not for a setting to use."""
    kinds = {figure.kind for figure in study.figures}
    return "gain" in kinds and "answer" not in kinds


def recommendation(study: StudyContext, cells: Sequence[CellRow], device: str) -> CellRow | None:
    """The setting to use on a device; None where the study does not ask for the fastest one."""
    if study.task == "inference" or is_about_quality(study):
        return None
    return recommended_cell(study, cells, device)


def recommended_cell(study: StudyContext, cells: Sequence[CellRow], device: str) -> CellRow | None:
    """The recommended cell of a device: the last one along the factors in `within`."""
    chosen = [c for c in cells if c.device == device and c.recommended and c.samples_per_s]
    names = study.within
    order = {name: [*map(level_text, study.factors[name].levels)] for name in names}

    def rank(cell: CellRow) -> list[int]:
        texts = {name: level_text(cell.levels[name]) for name in names}
        return [order[k].index(text) if text in order[k] else -1 for k, text in texts.items()]

    return max(chosen, key=rank, default=None)


def left_open(cells: Sequence[CellRow], device: str) -> dict[str, list[CellRow]]:
    """The cells of a device that the runs do not decide between, by the open question."""
    return text.grouped((c for c in cells if c.device == device and c.open), lambda c: c.open)


def _rates(study: StudyContext, cells: Sequence[CellRow]) -> str:
    """`workers = 2: 14.30 samples/s; workers = 16: …`."""
    return "; ".join(f"{name_of(study, c)}: {text.rate(c.samples_per_s)}" for c in cells) + "."


def _no_answer(cells: Sequence[CellRow], tried: Sequence[CellRow]) -> tuple[str, str]:
    """Why these cells give no answer, and what to do; the device supports those in `tried`."""
    one = len(tried) == 1
    if tried and all(cell.status == "out_of_memory" for cell in tried):
        none = "The only cell does not fit" if one else f"None of {len(tried)} cells fits"
        return f"{none} in memory.", FREE_MEMORY
    if tried:
        none = "The only cell that ran has no" if one else f"None of {len(tried)} cells has a"
        why = f"{none} valid result. The list of failed cells gives the cause."
        return why, "Remove the cause and run the study again."
    if cells:
        why = f"The device supports no cell of the study. {cells[0].cause}"
        return why, "Nothing to do on this device."
    return "No cell was run on this device.", "Run the study on it."


def _throughput(study: StudyContext, best: CellRow) -> str:
    interval = text.interval(best.ci_low, best.ci_high)
    spread = f"interval {interval}" if interval else "no interval"
    remark = "a single run, " * (best.ok_runs == 1) + spread
    rate = text.with_remark(f"Training throughput is {text.rate(best.samples_per_s)}", remark)
    return f"{rate}{_ratio(study, best)} {VERDICTS.get(best.verdict, '')}".strip()


def _ratio(study: StudyContext, best: CellRow) -> str:
    baseline = study.baseline_of(best.levels)
    if best.levels == baseline:
        return ". It is the baseline."
    apart = {k: v for k, v in baseline.items() if k in study.within or best.levels[k] != v}
    base = text.levels_text(apart)
    if best.speedup is None:
        return f". The baseline ({base}) has no number to compare with."
    low, high = best.speedup_ci_low, best.speedup_ci_high
    if low is None or high is None:
        return f", {text.ratio(best.speedup)} relative to {base}{best.basis}."
    noise = ", which noise may explain" if low <= 1 <= high else ""
    ratio = text.with_remark(text.ratio(best.speedup), text.ratio_interval(low, high))
    return f", {ratio} relative to {base}{noise}."


# Studies of memory


def _largest_that_fits(
    study: StudyContext, cells: Sequence[CellRow], factor: str, device: str
) -> Answer:
    """The largest level of a factor on the ladder, and the fastest one for each other setting."""
    name, label = study.label(device), study.factor_label(factor)
    order = [*map(level_text, study.factors[factor].levels)]
    fitting: list[tuple[str, str, Line]] = []
    for line in ladder_lines(study, cells, factor, device):
        if line.largest and line.fastest:
            large, fast = (level_text(p.levels[factor]) for p in (line.largest, line.fastest))
            where = f"{text.levels_text(line.others)}: " * bool(line.others)
            said = f"{where}up to {large}, fastest measured with {fast} ({text.rate(line.best)})"
            fitting.append((large, said, line))
    if not fitting:
        mine = [cell for cell in cells if cell.device == device]
        return Answer(f"{name}: no {label} fits.", "", FREE_MEMORY, mine, found=False)
    large, _, line = max(fitting, key=lambda one: order.index(one[0]))
    detail = "; ".join(said for _, said, _ in fitting)
    rows = [point.row for point in (line.largest, line.fastest) if point and point.row]
    fits = text.with_remark(f"a {label} of {large} fits", text.levels_text(line.others))
    return Answer(f"{name}: {fits}.", f"{detail}.", _use_of_memory(study, line, factor), rows)


def _use_of_memory(study: StudyContext, line: Line, factor: str) -> str:
    """The level to use, which is the fastest of the line, and whether the memory limit is known."""
    large, fast = (point and point.levels[factor] for point in (line.largest, line.fastest))
    where = f" with {text.levels_text(line.others)}" * bool(line.others)
    basis = line.fastest.row.basis if line.fastest and line.fastest.row else ""
    fastest = f"the fastest{where} ({text.rate(line.best)}{basis})"
    use = f"Use {large}, which is also {fastest}."
    if unsure := not_faster(study, line, factor):
        use = f"Use {fast}, {fastest}; {unsure}."
    elif fast != large:
        use = f"Use {fast}, {fastest}: larger ones fit, but are slower."
    beyond = f" No level ran out of memory{where}: add larger ones to find the limit."
    if [point for point in line.points if point.tried][-1].failed:
        beyond = f" Larger levels failed{where}: remove the cause to find the limit."
    return use + beyond * (line.out_of_memory is None)


def not_faster(study: StudyContext, line: Line, factor: str) -> str:
    """The levels that the fastest does not measurably beat, in words; empty if there are none."""
    fast, cells = line.fastest and line.fastest.row, [one.row for one in line.valid if one.row]
    rivals = fast.rivals(cells, study.noise_share) if fast else []
    levels = text.listed(level_text(cell.levels[factor]) for cell in rivals)
    return f"it is not measurably faster than {levels}" if rivals else ""


# Studies of inference


def _latency_and_throughput(study: StudyContext, cells: Sequence[CellRow]) -> Answer:
    """The lowest latency and the highest throughput of a device's valid cells, by level of the
    first factor. The headline is about the baseline's level."""
    first = next(iter(study.factors))
    groups = text.grouped(cells, lambda cell: level_text(cell.levels[first]))

    def others(cell: CellRow) -> str:
        levels = {k: v for k, v in differing(study, cell.levels).items() if k != first}
        return text.levels_text(levels) or "the baseline's settings"

    def sentence(group: Sequence[CellRow]) -> str:
        quick, busy = _quick_and_busy(group)
        return (
            f"lowest median latency {text.seconds(quick.step_time_median_s)} (99th percentile "
            f"{text.seconds(quick.step_time_p99_s)}) with {others(quick)}; "
            f"highest throughput {text.rate(busy.samples_per_s)} with {others(busy)}."
        )

    main = groups.get(level_text(study.baseline[first])) or next(iter(groups.values()))
    where = f" with {first} = {level_text(main[0].levels[first])}" if len(groups) > 1 else ""
    quick, busy = _quick_and_busy(main)
    lowest, highest = text.seconds(quick.step_time_median_s), text.rate(busy.samples_per_s)
    return Answer(
        f"{study.label(cells[0].device)}: the lowest latency measured is {lowest} and the highest "
        f"throughput {highest}{where}.",
        " ".join(f"{level}: {sentence(group)}" for level, group in groups.items()),
        _for_requests(study, main, where),
        [quick, busy],
    )


def _for_requests(study: StudyContext, cells: Sequence[CellRow], where: str) -> str:
    if len(cells) == 1:
        return f"Nothing to choose: only one setting{where} has a valid result."
    quick, busy = _quick_and_busy(cells)
    use = f"Use {name_of(study, quick)} for single requests, and {name_of(study, busy)} for many."
    if quick is busy:
        use = f"Use {name_of(study, quick)}."
    rivals = busy.rivals(cells, study.noise_share)
    names = named(study, rivals, "other setting") if rivals else ""
    which = "It" if quick is busy else "The latter"
    unsure = f" {which} is not measurably faster than {names}." * bool(names)
    single = " These are single runs." * bool(busy.basis)
    return f"{use}{unsure}{single} Latencies have no interval."


def _quick_and_busy(cells: Sequence[CellRow]) -> tuple[CellRow, CellRow]:
    """The cell with the lowest median latency, and the one with the highest throughput."""
    quick = min(cells, key=lambda cell: cell.step_time_median_s)
    return quick, max(cells, key=lambda cell: cell.samples_per_s)


# Studies of quality


def training_gains(
    study: StudyContext, results: Results, device: str
) -> list[tuple[str, str, ScoreRow]]:
    """The change of the accuracy on the test split in each cell that has scores, what to do, and
    the cell; that of the baseline comes first."""
    found = []
    cells = cells_of(results.scores, device)
    for cell in sorted(cells, key=lambda one: one.levels != study.baseline):
        score = pick(results.scores, cell, "test", MATCHING)
        if score and score.before is not None and score.after is not None:
            where = f" with {text.levels_text(cell.levels)}" if len(cells) > 1 else ""
            change, to_do = _change(_training(study, cell, results.runs), score)
            found.append((change + where, to_do, cell))
    return found


def _training(study: StudyContext, cell: CellOf, runs: Sequence[RunRow]) -> str:
    """`training bridgetower-tiny from random weights on drawn pictures`, by the cell's runs."""
    good = [run for run in runs if run.key == cell.key and run.status == "ok"]
    if not good:
        return "training"
    start = "random weights" if good[0].checkpoint == "none" else good[0].checkpoint
    drawn = cell.device in study.setups and study.setups[cell.device].drawn
    pictures = "drawn pictures" if drawn else f"the dataset {good[0].dataset}"
    single = " (a single run)" * (len(good) == 1)
    return f"training {good[0].model} from {start} on {pictures}{single}"


def _change(training: str, score: Score) -> tuple[str, str]:
    """`training raises … from 17% to 55% (paired interval +20 to +50 percentage points; …)`, and
    what to do. A change counts only if its paired interval excludes 0."""
    low, high, about = score.gain_low, score.gain_high, f"by chance {text.share(score.chance)}"
    what = "the share of correctly chosen captions (one of five)"
    ends = text.share(score.before), text.share(score.after)
    seen = f"{ends[0]} before, {ends[1]} after"
    if low is None or high is None:
        change = f"without a paired interval, it is unknown whether {training} changes {what}"
        return f"{change} ({seen}; {about})", "Evaluate on more examples."
    about = f"paired interval {100 * low:+.0f} to {100 * high:+.0f} percentage points; {about}"
    if low <= 0 <= high:
        change = f"{training} makes no measurable change to {what} ({seen}; {about})"
        return change, "Undecided: train longer, or evaluate on more examples."
    verb, to_do = "raises", "Use the trained weights."
    if low < 0:
        verb, to_do = "lowers", "Do not use the trained weights; look for the cause in the loss."
    return f"{training} {verb} {what} from {ends[0]} to {ends[1]} ({about})", to_do
