"""The prediction of the loader model for every number, published and measured, and its error."""

from feedrate.report import text
from feedrate.report.lines import short_names
from feedrate.report.markup import Markup, el, group_row, noted, row, table, word
from feedrate.report.params import PageSettings
from feedrate.report.rows import FitRow, Inputs

NEEDS = ("fit",)
ORDER = 180

HEADS = (
    "Cell",
    "Throughput (samples/s)",
    "Predicted (samples/s)",
    "Error",
    "Bound by",
    "Predicted from the ceilings only (samples/s)",
    "Its error",
)


def render(settings: PageSettings, inputs: Inputs) -> Markup:
    """A group of rows for each fit under its reading; a device may have several fits."""
    rows = inputs.rows("fit.csv", FitRow, settings.study)
    if not rows:
        return el("p", "There are no numbers to fit.")
    rows.sort(key=lambda entry: not entry.ours)
    short = short_names(rows)
    lines: list[Markup] = []
    for first, *others in text.grouped(rows, lambda entry: entry.fit).values():
        constants = {"Tc": first.tc_s, "Td": first.td_s}
        times = [f"{k} {text.seconds(s)}" for k, s in constants.items() if s is not None]
        name = first.called(settings.label(first.device))
        reading = first.reading or "Nothing is concluded from this fit."
        heading = noted(", ".join([name, first.origin, *times]), reading)
        lines.append(group_row(heading, len(HEADS)))
        for entry in (first, *others):
            fields = (
                text.number(entry.samples_per_s),
                text.number(entry.predicted) if entry.predicted else word("not fitted"),
                text.signed_share(entry.residual),
                entry.bound or text.DASH,
                text.number(entry.predicted_from_ceilings),
                text.signed_share(entry.ceiling_residual),
            )
            lines.append(row(short[entry.cell], *fields, of=[entry] if entry.ours else []))
    return table(HEADS, lines)
