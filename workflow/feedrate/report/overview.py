"""The first page of the report: each study's question, answer, findings and leading figure; then
all its tables and figures; then the provenance of its numbers, down to the record of every run."""

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from docutils.core import publish_parts
from markupsafe import Markup

from feedrate.config.study import Figure, Table
from feedrate.core import paths
from feedrate.core.files import write_text
from feedrate.report import html
from feedrate.report.answers import answer
from feedrate.report.context import StudyContext, page_settings, study_context
from feedrate.report.findings import Finding, claims_found, failed, failures, findings
from feedrate.report.minute import minute
from feedrate.report.pages import table_content
from feedrate.report.provenance import machines, packed_runs
from feedrate.report.rows import Inputs
from feedrate.report.table import Content
from feedrate.results.collect import merge_results
from feedrate.results.study_plan import StudyPlan, read_plan

LEADING = ("answer", "gain")
"""Kinds of the figure next to a study's answer; the first one that the study has is used."""
LISTED_FAILURES = 5
"""Failures that the first page lists one by one."""
_TAG = re.compile(r"<[^<>']*>")
_CODES = str.maketrans({"%": "%25", "#": "%23", "&": "%26", '"': "%22", "\n": " "})
"""The signs of a picture that an address or an attribute cannot hold."""
_SAFE: dict[str, Any] = dict.fromkeys(("raw_enabled", "file_insertion_enabled"), False)
_SAFE |= {"_disable_config": True, "report_level": 5}
"""Settings of docutils: no directive reads a file or passes HTML through."""

Captions = Mapping[str, Markup]
"""Captions as HTML, by file name without .rst."""


class Item(NamedTuple):
    """A table or figure of a study, with the content of the one or the picture of the other."""

    part: str
    page: Table | Figure
    content: Sequence[Content] = ()
    picture: Markup = Markup()


def write_report(plans: list[Path], captions: list[Path], results: Path) -> None:
    """Merge the result files of all studies in the folder `results`, and write the first page;
    `captions` are .rst files."""
    studies = [read_plan(plan) for plan in plans]
    merge_results([results / study.name for study in studies], results)
    content = render(studies, results, read_captions(captions))
    write_text(results / Path(paths.OVERVIEW).name, content)


def read_captions(files: Iterable[Path]) -> Captions:
    """The captions, from the files that Snakemake shows too."""
    return {file.stem: to_html(file.read_text(encoding="utf-8")) for file in files}


def to_html(source: str) -> Markup:
    """reStructuredText as HTML."""
    parts = publish_parts(source, writer="html", settings_overrides=_SAFE)
    return Markup(parts["body"].strip())


def render(plans: Sequence[StudyPlan], results: Path, captions: Captions) -> str:
    """The overview of studies whose files are in the folder `results`."""
    studies = [_study(plan, Inputs(results, plan.data_report)) for plan in plans]
    many = f"feedrate: results of {len(plans)} studies"
    title = plans[0].study.title if len(plans) == 1 else many
    return html.render("overview.html.j2", title=title, studies=studies, captions=captions)


def _study(plan: StudyPlan, inputs: Inputs) -> dict[str, Any]:
    """A study's part of the page."""
    study, results = study_context(plan), inputs.results(plan.name)
    bad = failures(study, results.cells)
    more = len(bad) - LISTED_FAILURES
    rest = [Finding(f"and {more} more", "see all cells.")] if more > 0 else []
    items = _items(study, inputs)
    leading = _leading(items)
    return {
        "settings": study,
        "answers": [answer(study, results, device) for device in study.measured],
        "minute": list(minute(study, results)),
        "claims": claims_found(results.claims),
        "failed": failed(len(bad)),
        "failures": bad,
        "listed_failures": [*bad[:LISTED_FAILURES], *rest],
        "leading": leading,
        "findings": findings(study, results),
        "pages": [item for item in items if item is not leading],
        "machines": machines(study, results.runs, results.records),
        **packed_runs(study, results.runs, results.records),
    }


def _items(study: StudyContext, inputs: Inputs) -> list[Item]:
    """All tables and figures, in the order of the page."""
    pages: dict[str, Table | Figure] = {
        **{f"figure-{page.name}": page for page in study.figures},
        **{f"table-{page.name}": page for page in study.tables},
    }
    items = []
    for page in (pages[anchor] for anchor in study.order):
        if isinstance(page, Table):
            items.append(
                Item("table", page, content=table_content(page_settings(study, page), inputs))
            )
        else:
            picture = inputs.page(study.study, page).read_text(encoding="utf-8")
            items.append(Item("figure", page, picture=_in_address(picture)))
    return items


def _leading(items: Sequence[Item]) -> Item | None:
    """The figure next to the study's answer, if it has one."""
    figures = {item.page.kind: item for item in reversed(items) if item.part == "figure"}
    return next((figures[kind] for kind in LEADING if kind in figures), None)


def _in_address(picture: str) -> Markup:
    """A picture as a part of an address, inside of double quotes."""
    drawing = picture[picture.index("<svg") :]
    return Markup(_TAG.sub(lambda tag: tag[0].replace('"', "'"), drawing).translate(_CODES))
