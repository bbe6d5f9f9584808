"""What the loader model says of every number, published and ours, and how well it explains it."""

from feedrate.report import text
from feedrate.report.grid import short_names
from feedrate.report.markup import Markup, el, group_row, join, row, small, table, word
from feedrate.report.rows import FitRow, Inputs
from feedrate.report.settings import TableSettings

_HEADS = (
    "Cell",
    "Number (samples/s)",
    "Model (samples/s)",
    "Off by",
    "Bound by",
    "From the ceilings alone (samples/s)",
    "Off by",
)


def render(settings: TableSettings, inputs: Inputs) -> Markup:
    """A group of rows for each fit, led by what it says: a device may have several."""
    rows = inputs.rows("fit.csv", FitRow, settings.study)
    if not rows:
        return el("p", "There are no numbers to fit.")
    rows.sort(key=lambda entry: entry.origin != "here")
    short = short_names(rows)
    lines: list[Markup] = []
    for fit in dict.fromkeys(entry.fit for entry in rows):
        mine = [entry for entry in rows if entry.fit == fit]
        lines.append(group_row(join(_heading(settings, mine[0]), small(mine[0].reading)), 7))
        lines += [_row(entry, short[entry.cell]) for entry in mine]
    across = dict.fromkeys(entry.across_devices for entry in rows if entry.across_devices)
    return join(*(el("p", sentence) for sentence in across), table(_HEADS, lines))


def _heading(settings: TableSettings, entry: FitRow) -> str:
    times = [f"Tc {text.seconds(entry.tc_s)}"] if entry.tc_s is not None else []
    times += [f"Td {text.seconds(entry.td_s)}"] if entry.td_s is not None else []
    return ", ".join([entry.called(settings.label(entry.device)), entry.origin, *times])


def _row(entry: FitRow, name: str) -> Markup:
    return row(
        [
            name,
            text.number(entry.samples_per_s),
            text.number(entry.predicted) if entry.predicted else word("not fitted"),
            text.signed_share(entry.residual),
            entry.bound or text.DASH,
            text.number(entry.predicted_from_ceilings),
            text.signed_share(entry.ceiling_residual),
        ]
    )
