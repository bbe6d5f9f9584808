"""The sheets of the published numbers: what their source states, compared with our runs."""

from collections.abc import Mapping, Sequence

from msgspec.structs import asdict

from feedrate.config.study import Published
from feedrate.config.values import Level, level_text
from feedrate.report import text
from feedrate.report.context import PageSettings
from feedrate.report.markup import Markup, el, group_row, noted, row, table
from feedrate.report.rows import Inputs, RunRow
from feedrate.results.comparability import NEEDS as KINDS
from feedrate.results.comparability import Compared, compare, in_the_way

ORDER = 195

HEADS = ("Item", "The source", "Here", "Outcome", "Rules out")


def render(settings: PageSettings, inputs: Inputs) -> Markup:
    """The items of each number that claims use, compared with our run of the most similar cell, on
    its device or, without runs there, on each. Numbers with the same items share a group."""
    good = (run for run in inputs.runs(settings.study) if run.status == "ok")
    runs = text.grouped(good, lambda run: run.device)
    groups: dict[tuple[str, tuple[Compared, ...]], list[tuple[Published, RunRow]]] = {}
    for number in (one for one in settings.published if one.headline):
        for device in [number.device] if number.device in runs else runs:
            run = _similar({**settings.baseline, **number.levels}, settings.baseline, runs[device])
            items = tuple(compare(number, asdict(run), settings.sources))
            groups.setdefault((device, items), []).append((number, run))
    rows: list[Markup] = []
    for (device, items), pairs in groups.items():
        numbers, compared = zip(*pairs, strict=True)
        theirs, ours = (
            "; ".join(dict.fromkeys(text.levels_text(one.levels) for one in side))
            for side in (numbers, compared)
        )
        here = text.with_remark(settings.label(device), ours)
        heading = f"{settings.label(numbers[0].device)} ({theirs}), compared with {here}"
        rows.append(group_row(heading, len(HEADS)))
        for one in items:
            kinds = ", ".join(kind for kind in KINDS if one in in_the_way(items, kind))
            said, done = one.texts
            fields = noted(said, one.where), done, one.outcome, kinds
            rows.append(row(one.label, *fields, of=compared))
    if not rows:
        return el("p", "There is no published number, or no run to compare it with.")
    return table(HEADS, rows, "texts")


def _similar(
    levels: Mapping[str, Level], baseline: Mapping[str, Level], runs: Sequence[RunRow]
) -> RunRow:
    """The run with the most of these levels; of several, the one most like the baseline."""

    def alike(run: RunRow, wanted: Mapping[str, Level]) -> int:
        return sum(
            level_text(level) == level_text(run.levels.get(name, ""))
            for name, level in wanted.items()
        )

    return max(runs, key=lambda run: (alike(run, levels), alike(run, baseline)))
