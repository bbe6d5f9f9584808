"""The pages of a study: tables as HTML, and figures as SVG."""

from collections.abc import Sequence
from pathlib import Path

from feedrate.config.study import FIGURES, TABLES, Figure, Table
from feedrate.core import plugins
from feedrate.core.files import write_text
from feedrate.report import html
from feedrate.report.context import PageSettings, page_settings, study_context
from feedrate.report.rows import Inputs
from feedrate.report.table import Content
from feedrate.results.study_plan import StudyPlan, read_plan


def plot_figures(plan: Path, results: Path) -> None:
    """Write the figures of a study into the folder of its results, and remove all others."""
    study = read_plan(plan)
    _write(study, study.study.figures, results, "figures/*.svg")


def tabulate_results(plan: Path, results: Path) -> None:
    """Write the tables of a study into the folder of its results, and remove all others."""
    study = read_plan(plan)
    _write(study, study.study.tables, results, "tables/*.html")


def _write(plan: StudyPlan, items: Sequence[Table | Figure], results: Path, pattern: str) -> None:
    inputs, study = Inputs(results.parent, plan.data_report), study_context(plan)
    files = {inputs.page(plan.name, item): item for item in items}
    for file, item in files.items():
        write_text(file, render(page_settings(study, item), inputs))
    for other in {*results.glob(pattern)} - files.keys():
        other.unlink()


def render(settings: PageSettings, inputs: Inputs) -> str:
    """A table as a page, or a figure. Raises ConfigError where an input is missing or wrong."""
    if settings.part == "table":
        content = table_content(settings, inputs)
        return html.render("table.html.j2", title=settings.title, parts=content)
    from feedrate.report import drawing  # it loads matplotlib, which no table needs

    picture = plugins.load_kind(FIGURES, settings.kind)(settings, inputs)
    return drawing.as_svg(picture, settings.title)


def table_content(settings: PageSettings, inputs: Inputs) -> list[Content]:
    """The tables and sentences that the kind of a table makes of the results of a study."""
    content = plugins.load_kind(TABLES, settings.kind)(settings, inputs)
    return content if isinstance(content, list) else [content]
