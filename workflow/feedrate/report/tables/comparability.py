"""The sheets of the published numbers: what their source states, beside what our runs did."""

from collections.abc import Sequence

from msgspec.structs import asdict

from feedrate.config.study import Published
from feedrate.report import text
from feedrate.report.lines import first_runs, level_key
from feedrate.report.markup import Markup, el, group_row, noted, row, table
from feedrate.report.params import PageSettings
from feedrate.report.rows import Inputs, RunRow
from feedrate.results.comparability import NEEDS as MATTERS
from feedrate.results.comparability import Compared, compare

NEEDS = ("runs", "published")
ORDER = 195

HEADS = ("Item", "The source", "Here", "Outcome", "Matters for")


def render(settings: PageSettings, inputs: Inputs) -> Markup:
    """The items of each number that claims use, numbers with the same items together.

    A number is beside our run of its cell, or else of its device, or else of each device.
    """
    of_cell = first_runs(inputs.runs(settings.study))
    of_device = {run.device: run for run in reversed(of_cell.values())}
    groups: dict[tuple[str, tuple[Compared, ...]], list[tuple[Published, RunRow]]] = {}
    for number in (one for one in settings.published if one.headline):
        for device in [number.device] if number.device in of_device else of_device:
            key = level_key({**settings.baseline, **number.levels})
            run = of_cell.get((device, key), of_device[device])
            items = tuple(compare(number, asdict(run), settings.sources))
            groups.setdefault((device, items), []).append((number, run))
    rows: list[Markup] = []
    for (device, items), pairs in groups.items():
        numbers, beside = zip(*pairs, strict=True)
        names = "; ".join(dict.fromkeys(text.levels_text(one.levels) for one in numbers))
        heading = f"{settings.label(numbers[0].device)} ({names}), beside {settings.label(device)}"
        rows += [group_row(heading, len(HEADS)), *(_row(item, beside) for item in items)]
    if not rows:
        return el("p", "There is no published number, or no run to compare it with.")
    return table(HEADS, rows, "texts")


def _row(one: Compared, beside: Sequence[RunRow]) -> Markup:
    fp32 = one.item == "tf32" and any(run.precision == "fp32" for run in beside)
    kinds = (
        kind
        for kind, needs in MATTERS.items()
        if one.item in needs.same | needs.alike or (fp32 and kind != "memory")
    )
    said, here = one.texts
    about = noted(said, one.where)
    return row(one.label, about, here, one.outcome, ", ".join(kinds), of=beside)
