"""Changes that would help: gains of virtual speed-ups, and predictions with their outcomes."""

from collections.abc import Sequence
from statistics import median

from feedrate.config.values import level_text
from feedrate.report import text
from feedrate.report.markup import Markup, el, group_row, join, noted, record_link, row, table
from feedrate.report.params import PageSettings
from feedrate.report.rows import CellOf, Inputs
from feedrate.results.ledger import Outcome, WouldHelp

NEEDS = ("would_help",)
ORDER = 135

HEADS = ("Change", "Rule", "Before (samples/s)", "Predicted", "Measured later", "Error")

NONE = (
    "There is no prediction here: each change that the rules cover had already run, or needs the "
    "time of a part that no run has measured."
)


def render(settings: PageSettings, inputs: Inputs) -> Markup:
    """A sentence for each cell with virtual speed-ups; then the predictions by the day on which
    they were made, with the median error of those that count."""
    found = inputs.json("would_help.json", WouldHelp)
    gains = []
    for device, cell, phrases in found.gains:
        one = CellOf(study=settings.study, device=device, cell=cell)
        name = record_link(_name(settings, one), one)
        gains.append(el("p", name, f": {text.listed(phrases)}."))
    if found.fault:
        return join(*gains, el("p", found.fault))
    lines: list[Markup] = []
    for day, outcomes in text.grouped(found.outcomes, lambda one: one.made_at[:10]).items():
        lines.append(group_row(f"{day}: {_summary(outcomes)}", len(HEADS)))
        lines += [_row(settings, one) for one in outcomes]
    if not lines:
        return join(*gains, el("p", NONE))
    return join(*gains, el("p", _summary(found.outcomes)), table(HEADS, lines))


def _summary(outcomes: Sequence[Outcome]) -> str:
    errors = [abs(error) for one in outcomes if (error := one.error) is not None]
    late = sum(one.late for one in outcomes)
    words = f"{text.counted(len(outcomes), 'prediction')}, {len(errors)} with a result"
    words += f" (median error {text.share(median(errors))})" if errors else ""
    after = f"; {late} made after the change had run {'does' if late == 1 else 'do'} not count."
    return words + (after if late else ".")


def _row(settings: PageSettings, one: Outcome) -> Markup:
    cell = CellOf(study=one.study, device=one.device, cell=one.cell)
    change = f"{one.setting}: {level_text(one.level)}"
    value, *ends = one.predicted
    return row(
        noted(change, f"from {_name(settings, cell)}"),
        one.rule,
        text.number(one.before),
        noted(text.number(value), text.interval(*ends)),
        text.number(one.measured),
        "does not count" if one.late else text.signed_share(one.error),
        of=[cell],
    )


def _name(settings: PageSettings, cell: CellOf) -> str:
    return f"{settings.label(cell.device)}, {text.levels_text(cell.levels)}"
