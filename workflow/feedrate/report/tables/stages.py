"""Time of an optimizer step by stage: of the loader's processes, and of the one that trains."""

from feedrate.report import text
from feedrate.report.markup import Field, Markup, cell_table
from feedrate.report.page import as_page
from feedrate.report.params import PageSettings
from feedrate.report.rows import Inputs
from feedrate.results.schema import VALUES

NEEDS = ("cells",)
ORDER = 125


def _time(column: str) -> Field:
    return lambda cell: text.seconds(getattr(cell, column))


STAGES: dict[str, Field] = {
    value.field.removesuffix("_s").replace("_", " ").capitalize(): _time(value.column)
    for value in VALUES.values()
    if value.part == "stages"
}
"""In the order of the schema; a stage that no run told apart has no column."""


@as_page
def render(settings: PageSettings, inputs: Inputs) -> Markup:
    """A row for each tried cell: the median step, and its stages."""
    columns = {"Step, median": _time("step_time_median_s"), **STAGES}
    return cell_table(settings, inputs.cells(settings.study), columns, optional=STAGES)
