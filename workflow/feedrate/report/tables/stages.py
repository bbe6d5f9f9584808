"""Time of an optimizer step by stage: of the loader's processes, and of the one that trains."""

from typing import get_args

from feedrate.config.spec import Stage
from feedrate.report import text
from feedrate.report.markup import Field, Markup, cell_table, noted
from feedrate.report.params import PageSettings
from feedrate.report.rows import CellRow, Inputs

NEEDS = ("cells",)
ORDER = 125
NOT_SPLIT = "not split"
GROUPS = ("fetch", "prepare")


def _stage(stage: str) -> Field:
    """The time of a stage or group in a step; below it the 95th percentile of its single spans, and
    its CPU time."""

    def field(cell: CellRow) -> str:
        seconds = getattr(cell, f"stage_{stage}_s")
        if seconds is None:
            lost = cell.stage_not_split.split(";") if cell.stage_not_split else []
            return NOT_SPLIT if stage in lost or (lost and stage in GROUPS) else text.DASH
        p95_s, cpu_s = (getattr(cell, f"stage_{stage}_{one}", None) for one in ("p95_s", "cpu_s"))
        details = {"p95": p95_s, "CPU": cpu_s}
        words = (f"{name} {text.seconds(one)}" for name, one in details.items() if one is not None)
        return noted(text.seconds(seconds), ", ".join(words))

    return field


COLUMNS: dict[str, Field] = {
    **{one.capitalize(): _stage(one) for one in GROUPS},
    **{one.replace("_", " ").capitalize(): _stage(one) for one in get_args(Stage)},
}
"""A stage that no run measured separately has no column."""


def render(settings: PageSettings, inputs: Inputs) -> Markup:
    """A row for each tried cell: the median step, what fetches and prepares, and the stages."""
    columns: dict[str, Field] = {"Step, median": lambda cell: text.seconds(cell.step_time_median_s)}
    cells = inputs.cells(settings.study)
    return cell_table(settings, cells, columns | COLUMNS, optional=COLUMNS)
