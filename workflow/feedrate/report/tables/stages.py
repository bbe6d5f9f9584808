"""Time of an optimizer step by stage: of the loader's processes, and of the one that trains."""

from functools import partial
from typing import get_args

from feedrate.config.spec import Stage
from feedrate.report import text
from feedrate.report.context import PageSettings
from feedrate.report.markup import Field, Markup, cell_table, noted
from feedrate.report.rows import CellRow, Inputs

ORDER = 125
GROUPS = ("fetch", "prepare")


def _time(stage: str, cell: CellRow) -> str:
    """The time of a stage or group in a step; below it the 95th percentile of its single spans, and
    its CPU time."""
    seconds = getattr(cell, f"stage_{stage}_s")
    if seconds is None:
        lost = cell.stage_not_split.split(";") if cell.stage_not_split else []
        return "not split" if stage in lost or (lost and stage in GROUPS) else text.DASH
    details = {
        "p95": getattr(cell, f"stage_{stage}_p95_s", None),
        "CPU": getattr(cell, f"stage_{stage}_cpu_s", None),
    }
    words = (f"{name} {text.seconds(one)}" for name, one in details.items() if one is not None)
    return noted(text.seconds(seconds), ", ".join(words))


COLUMNS: dict[str, Field] = {
    one.replace("_", " ").capitalize(): partial(_time, one) for one in (*GROUPS, *get_args(Stage))
}
"""A stage that no run measured separately has no column."""


def render(settings: PageSettings, inputs: Inputs) -> Markup:
    """A row for each tried cell: the median step, what fetches and prepares, and the stages."""
    columns: dict[str, Field] = {"Step, median": lambda cell: text.seconds(cell.step_time_median_s)}
    tried = inputs.tried(settings.study)
    return cell_table(settings, tried, columns | COLUMNS, optional=COLUMNS)
