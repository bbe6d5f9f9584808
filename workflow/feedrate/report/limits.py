"""The limits of a study's settings (memory, the loader, noise) in sentences from result rows, and
the names of several cells in a sentence."""

from collections import defaultdict
from collections.abc import Sequence
from functools import partial
from itertools import permutations
from statistics import median

from feedrate.config.values import Level, level_text
from feedrate.jobs.events import NOT_TRIED
from feedrate.report import text
from feedrate.report.context import StudyContext
from feedrate.report.lines import notable
from feedrate.report.rows import CellOf, CellRow, Results, RunRow, rates_of
from feedrate.results.comparability import DECODE, WORKERS, computes_the_same
from feedrate.results.conformity import SHARE, merge_causes
from feedrate.results.statistics import CONFIDENCE, pooled_noise, ratio_interval
from feedrate.results.verdicts import MODEL_OPEN, START_LESS, STARTS

Said = tuple[str, Sequence[CellOf]]
"""A sentence, and the cells or runs that it rests on."""
FEW = 4
"""Settings that a sentence names; more are counted."""
LONG = 120
"""Characters from which the names of several cells are replaced by their number."""


def out_of_memory(study: StudyContext, cells: Sequence[CellRow], device: str) -> Said:
    """How many cells of a ladder ran out of memory, and how many were skipped because of that."""
    mine = [c for c in cells if c.device == device and c.status == "out_of_memory"]
    if not (mine and study.ladder):
        return "", ()
    skipped = sum(cell.cause.startswith(NOT_TRIED) for cell in mine)
    needs, were = ("needs", "was") if skipped == 1 else ("need", "were")
    more = f"; {text.counted(skipped, 'cell')} that {needs} at least as much {were} skipped"
    limit = text.with_remark("ran out of memory", study.limit(device))
    ran_out = f"{text.counted(len(mine) - skipped, 'cell')} {limit}, which counts as a result"
    return f"{ran_out}{more * bool(skipped)}.", mine


def loader_rates(study: StudyContext, cells: Sequence[CellRow], runs: Sequence[RunRow]) -> Said:
    """The loader-only throughput of each decode path with as many workers as the baseline, where a
    study compares several; else empty."""
    factors = {factor.sets: name for name, factor in study.factors.items()}
    workers = factors.get(WORKERS, "")
    usual = study.baseline.get(workers)
    alike = [c for c in cells if c.loader_samples_per_s and c.levels.get(workers) == usual]
    base = next((cell for cell in alike if cell.levels == study.baseline), None)
    if DECODE not in factors or base is None or len(alike) < 2:
        return "", ()
    rates = {cell.key: rates_of(cell, runs, "loader_samples_per_s") for cell in alike}
    noise, compared = pooled_noise(rates.values()), []
    for cell in alike:
        others = {name: v for name, v in cell.levels.items() if name != workers}
        name = text.levels_text(notable(study, others)) or "the baseline"
        own = rates[cell.key]
        ratio, *ends = ratio_interval(own, rates[base.key], CONFIDENCE, noise, len(alike) - 1)
        sure = " to ".join(text.number(end, 3) for end in ends if end) or "no interval: single runs"
        times = text.TIMES + text.number(ratio, 3) + f", {sure}" * (cell is not base)
        compared.append(f"{name} {text.number(median(own), 3)} samples/s ({times})")
    where = f"With {workers} = {usual}: " if workers else ""
    sentences = [f"{where}{text.listed(compared)}."]
    equal = (c for c in cells if computes_the_same(study.factors, c.levels, study.baseline))
    if models := [rate for cell in equal if (rate := cell.model_samples_per_s)]:
        sentences.append(f"Model-only throughput is {text.number(median(models), 3)} samples/s.")
    return " ".join(sentences), alike


def verdicts(study: StudyContext, cells: Sequence[CellRow]) -> Said:
    """The settings with each verdict. Starts of epochs are named where a verdict rests on them."""
    parts = []
    judged = [cell for cell in cells if cell.verdict]
    kinds = text.grouped(judged, lambda c: (c.verdict, STARTS in c.why, _by_wait_alone(c)))
    for (verdict, starts, by_wait), group in kinds.items():
        of = {"starting epochs": "epoch_start_share"} if starts else {}
        of["waiting for data"] = "data_wait_share"
        spent = [_longest(what, [getattr(c, share) for c in group]) for what, share in of.items()]
        if by_wait:
            spent.append("by the wait; how much faster the model alone is, is undecided")
        word = "limited by no single cause" if verdict == "mixed" else verdict
        limited = text.with_remark(word, ", ".join(filter(None, spent)))
        parts.append(f"{limited.capitalize()}: {group_name(study, group, judged)}.")
    parts += [START_LESS] * any(kind[:2] == ("input-bound", True) for kind in kinds)
    return " ".join(parts), judged


def _by_wait_alone(cell: CellRow) -> bool:
    return cell.verdict == "input-bound" and MODEL_OPEN in cell.why


def _longest(what: str, shares: Sequence[float | None]) -> str:
    known = [share for share in shares if share is not None]
    bound, most = "up to " * (len(known) > 1), text.share(max(known, default=None))
    return f"{what} {bound}{most} of the time" if known else ""


def below_rate(study: StudyContext, cells: Sequence[CellRow]) -> Said:
    """The parts that are slower alone than training, so that they bound no rate."""
    below = [cell for cell in cells if cell.below_rate]
    parts = [
        f"{text.listed(names.split(';')).capitalize()}: {group_name(study, group, cells)}."
        for names, group in text.grouped(below, lambda cell: cell.below_rate).items()
    ]
    why = (
        "Training, in the same setting or in another one that computes the same, is faster than "
        "these parts alone, so they are not ceilings."
    )
    return " ".join([why, *parts]) if parts else "", below


def mixed_software(study: StudyContext, cells: Sequence[CellRow], results: Results) -> Said:
    """The settings whose ok runs differ in their driver or packages, so that their medians do not
    belong to one version."""
    by_cell = text.grouped((run for run in results.runs if run.status == "ok"), lambda run: run.key)
    mixed, changed = list[CellRow](), set[str]()
    for cell in cells:
        records = (results.records.get(run.folder) for run in by_cell.get(cell.key, ()))
        made = (record.provenance for record in records if record)
        software = [one.packages | {"the driver": one.driver} for one in made if one.packages]
        every = {name for one in software for name in one}
        differ = {name for name in every if len({one.get(name) for one in software}) > 1}
        if differ and not cell.measured_as:
            mixed.append(cell)
            changed |= differ
    if not mixed:
        return "", ()
    names = text.listed(sorted(changed))
    return f"Runs of one setting differ in {names}: {group_name(study, mixed, cells)}.", mixed


def noise(study: StudyContext, cells: Sequence[CellRow]) -> Said:
    """Cells that may have been disturbed, and cells whose repeats differ by more than allowed."""
    disturbed = [cell for cell in cells if cell.disturbed]
    found = []
    for alike in text.grouped(disturbed, lambda cell: SHARE.sub("", cell.disturbed)).values():
        where = group_name(study, alike, cells)
        runs = f"{'A run' if len(alike) == 1 else 'Runs'} with {where}"
        found.append(
            f"{runs} may have been disturbed. {merge_causes([c.disturbed for c in alike])}"
        )
    wide = [c for c in cells if c.noisy and not c.disturbed]
    if wide:
        names = each_name(study, [cell.levels for cell in wide])
        said = text.listed(map(text.with_remark, names, (text.share(c.spread) for c in wide)))
        if len(said) > 2 * LONG:
            spreads = [cell.spread or 0.0 for cell in wide]
            ends = " to ".join(dict.fromkeys(map(text.share, (min(spreads), max(spreads)))))
            ran = sum(cell.ok_runs > 1 for cell in cells)
            said = f"{len(wide)} of {ran} settings (by {ends})"
        found.append(f"Two runs of one setting may differ by more than the study allows: {said}.")
    return " ".join(found), [*disturbed, *wide]


def short_epochs(study: StudyContext, cells: Sequence[CellRow]) -> Said:
    """Cells whose epochs are too short for their rates to be compared with published ones."""
    short = [cell for cell in cells if cell.short_epochs]
    names = each_name(study, [cell.levels for cell in short])
    said = text.listed(map(text.with_remark, names, (str(c.steps_per_epoch) for c in short)))
    why = "Too few steps per epoch to be compared with published rates"
    return f"{why}: {said}." * bool(short), short


# Names of several cells


def group_name(study: StudyContext, cells: Sequence[CellRow], every: Sequence[CellRow]) -> str:
    """`decode = host with workers = 1 and 2; decode = cache with workers = 2`: cells that differ in
    one factor are grouped, by the factor that makes the fewest groups. A factor that one group
    names is named in all. A level of the baseline is named where it distinguishes a cell from one
    of `every` that is not among `cells` and has the grouped level. A name longer than `LONG`
    becomes `19 of 33 settings`."""
    name = _full_name(study, cells, every)
    return name if len(name) <= LONG else f"{len(cells)} of {text.counted(len(every), 'setting')}"


def _full_name(study: StudyContext, cells: Sequence[CellRow], every: Sequence[CellRow]) -> str:
    own = {cell.key for cell in cells}
    elsewhere = defaultdict[tuple[str, Level, str], set[Level]](set)
    for levels in (cell.levels for cell in every if cell.key not in own):
        for factor, name in permutations(levels, 2):
            elsewhere[factor, levels[factor], name].add(levels[name])

    def telling(factor: str) -> set[str]:
        """The other factors that distinguish any of the cells: then each group names them."""
        needed = set[str]()
        for levels in (cell.levels for cell in cells):
            needed.update(notable(study, levels))
            at = factor, levels[factor]
            needed |= {name for name in levels if elsewhere[*at, name] - {levels[name]}}
        return needed - {factor}

    def others(cell: CellRow, names: set[str]) -> str:
        return text.levels_text({name: at for name, at in cell.levels.items() if name in names})

    groups = {
        name: text.grouped(cells, partial(others, names=telling(name))) for name in study.factors
    }
    workers = next((n for n, f in study.factors.items() if f.sets == WORKERS), None)
    factor = min(groups, key=lambda name: (len(groups[name]), name != workers))
    return "; ".join(
        f"{rest}{' with ' * bool(rest)}{factor} = "
        + text.listed(level_text(cell.levels[factor]) for cell in group)
        for rest, group in groups[factor].items()
    )


def each_name(study: StudyContext, cells: Sequence[dict[str, Level]]) -> list[str]:
    """The cells' names, each with the levels of all factors that one of them needs."""
    named = set[str]().union(*(notable(study, levels) for levels in cells))
    kept = [{k: v for k, v in levels.items() if k in named} for levels in cells]
    parts = [[f"{k} = {level_text(v)}" for k, v in levels.items()] or [""] for levels in kept]
    return [" with ".join(filter(None, (one, text.listed(rest)))) for one, *rest in parts]


def several(study: StudyContext, cells: Sequence[dict[str, Level]]) -> str:
    """Several settings: `workers = 0, 1 and 2, decode = host` where they differ in one factor; else
    one after another, each with all levels in which they differ."""
    values = {name: dict.fromkeys(level_text(cell[name]) for cell in cells) for name in cells[0]}
    if sum(len(found) > 1 for found in values.values()) != 1:
        return text.listed(each_name(study, cells))
    named = set[str]().union(*(notable(study, levels) for levels in cells))
    return ", ".join(f"{k} = {text.listed(values[k])}" for k in values if k in named)


def named(study: StudyContext, cells: Sequence[CellRow], noun: str = "setting") -> str:
    """The names of a few cells; the number of many."""
    many = len(cells) > FEW
    return text.counted(len(cells), noun) if many else several(study, [c.levels for c in cells])
