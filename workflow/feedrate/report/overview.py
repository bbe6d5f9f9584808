"""The first page of the report: each study's question, answer, findings and leading figure; then
all its tables and figures; then the provenance of its numbers, down to the record of every run."""

import html
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from docutils.core import publish_parts

from feedrate.config.errors import ConfigError
from feedrate.config.study import Figure, Table
from feedrate.core import paths
from feedrate.core.files import write_text
from feedrate.report.answers import answer
from feedrate.report.context import StudyContext, study_context
from feedrate.report.findings import Finding, failed, failures, findings
from feedrate.report.markup import OVERVIEW, Markup, el, join, link, record_link
from feedrate.report.minute import minute
from feedrate.report.page import CLOSE, OPEN, page
from feedrate.report.provenance import provenance
from feedrate.report.rows import Inputs, Results
from feedrate.results.collect import merge_results
from feedrate.results.study_plan import read_plan

LEADING = ("answer", "gain")
"""Kinds of the figure next to a study's answer; the first one that the study has is used."""
_TAG = re.compile(r"<[^<>']*>")
_CODES = str.maketrans({"%": "%25", "#": "%23", "&": "%26", '"': "%22", "\n": " "})
"""The signs of a picture that an address or an attribute cannot hold."""
LISTED_FAILURES = 5
"""Failures that the first page lists one by one."""

_SAFE: dict[str, Any] = dict.fromkeys(("raw_enabled", "file_insertion_enabled"), False)
_SAFE |= {"_disable_config": True, "report_level": 5}
"""Settings of docutils: no directive reads a file or passes HTML through."""

Captions = Mapping[str, Markup]
"""Captions as HTML, by file name without .rst."""


def write_report(plans: list[Path], captions: list[Path], results: Path) -> None:
    """Merge the result files of all studies in the folder `results`, and write the first page;
    `captions` are .rst files."""
    studies = [study_context(read_plan(plan)) for plan in plans]
    merge_results([results / study.study for study in studies], results)
    content = render(studies, Inputs(results), read_captions(captions))
    write_text(results / Path(paths.OVERVIEW).name, content)


def read_captions(files: Iterable[Path]) -> Captions:
    """The captions, from the files that Snakemake shows too."""
    return {file.stem: to_html(file.read_text(encoding="utf-8")) for file in files}


def to_html(source: str) -> Markup:
    """reStructuredText as HTML."""
    parts = publish_parts(source, writer="html", settings_overrides=_SAFE)
    return Markup(parts["body"].strip())


def render(studies: Sequence[StudyContext], inputs: Inputs, captions: Captions) -> str:
    """The overview as a complete page that needs no other file."""
    results = {study.study: inputs.results(study.study) for study in studies}
    single = len(studies) == 1
    title = studies[0].title if single else f"feedrate: results of {len(studies)} studies"
    return page(
        title,
        el("h1", studies[0].question, id=studies[0].study) if single else el("h1", title),
        minute(studies, results),
        *(_summary(one, results[one.study], inputs, captions, single) for one in studies),
        el("nav", el("h2", "All results"), *map(_links, studies), aria_label="Contents"),
        *(_details(one, results[one.study], inputs, captions) for one in studies),
    )


def _summary(
    study: StudyContext, results: Results, inputs: Inputs, captions: Captions, single: bool
) -> Markup:
    answers = [answer(study, results, device) for device in study.measured]
    figure = _leading(study)
    words = " ".join(one.headline for one in answers)
    return join(
        None if single else el("h2", study.question, id=study.study),
        el("p", study.title, class_="kicker"),
        _failures(failures(study, results.cells)),
        *(
            _box(record_link(one.headline, *one.cells, at=""), el("p", one.detail), good=one.found)
            for one in answers
        ),
        _picture(study, figure, inputs, words) if figure else None,
        _caption(figure, captions) if figure else None,
        _listed(findings(study, results)),
        el("p", "Source: ", link(study.origin.title, study.origin.address), ".", class_="kicker"),
    )


def _listed(found: Sequence[Finding]) -> Markup:
    leads = (el("b", record_link(f"{one.lead}:", *one.cells, at="")) for one in found)
    items = (el("li", lead, f" {one.text}") for lead, one in zip(leads, found, strict=True))
    return el("ul", *items, class_="rests")


def _failures(found: Sequence[Finding]) -> Markup | None:
    if not found:
        return None
    more = len(found) - LISTED_FAILURES
    rest = [Finding(f"and {more} more", "see all cells.")] * (more > 0)
    shown = _listed([*found[:LISTED_FAILURES], *rest])
    return _box(failed(len(found)), shown, good=False)


def _box(heading: str, content: Markup, good: bool) -> Markup:
    return el("div", el("strong", heading), content, class_="answer" if good else "answer bad")


def _links(study: StudyContext) -> Markup:
    pages = {**{anchor: item.title for anchor, item in _items(study)}, "provenance": "Provenance"}
    links = (
        el("li", el("a", title, href=f"#{study.study}-{anchor}")) for anchor, title in pages.items()
    )
    return join(el("p", study.title, class_="kicker"), el("ul", *links))


def _details(study: StudyContext, results: Results, inputs: Inputs, captions: Captions) -> Markup:
    parts: list[str] = [el("h2", f"{study.title}: all results")]
    for anchor, item in _items(study):
        heading = el("h3", item.title, id=f"{study.study}-{anchor}")
        if isinstance(item, Table):
            content = content_of(inputs.page(study.study, item))
        else:
            content = _picture(study, item, inputs, item.title)
        parts.append(el("section", heading, _caption(item, captions), content, class_="far"))
    parts.append(el("h2", f"{study.title}: provenance", id=f"{study.study}-provenance"))
    return join(*parts, provenance(study, results.runs, results.records))


def content_of(path: Path) -> Markup:
    """The content of a page that `page` made, as a part of the overview: links to the overview stay
    in it, and links to other files start from its folder. Raises ConfigError for any other file."""
    _, opened, rest = path.read_text(encoding="utf-8").partition(OPEN)
    content, closed, _ = rest.rpartition(CLOSE)
    if not (opened and closed):
        raise ConfigError(f"{path}: not a table page of this report")
    content = content.replace(f'href="{OVERVIEW}#', 'href="#')
    return Markup(content.replace('href="../../../', 'href="../'))


def _items(study: StudyContext) -> list[tuple[str, Table | Figure]]:
    """Tables and figures with their anchors, without the leading figure."""
    pages: dict[str, Table | Figure] = {
        **{f"figure-{item.name}": item for item in study.figures},
        **{f"table-{item.name}": item for item in study.tables},
    }
    leading = _leading(study)
    return [(anchor, pages[anchor]) for anchor in study.order if pages[anchor] is not leading]


def _leading(study: StudyContext) -> Figure | None:
    """The figure next to the study's answer, if it has one."""
    figures = {figure.kind: figure for figure in reversed(study.figures)}
    return next((figures[kind] for kind in LEADING if kind in figures), None)


def _caption(item: Table | Figure, captions: Captions) -> Markup:
    """The caption of a table or figure; empty where its file was not given."""
    known = captions.get(item.caption)
    return Markup() if known is None else el("div", known, class_="caption")


def _picture(study: StudyContext, figure: Figure, inputs: Inputs, words: str) -> Markup:
    """A figure as data: no script in it can run, and no name in it can clash."""
    content = inputs.page(study.study, figure).read_text(encoding="utf-8")
    address = f"data:image/svg+xml,{_in_address(content)}"
    image = Markup(f'<img src="{address}" alt="{html.escape(words)}">')
    # The box scrolls sideways on a phone, so a key must reach it.
    return el("figure", el("div", image), tabindex="0")


def _in_address(picture: str) -> str:
    """A picture as a part of an address, inside of double quotes."""
    drawing = picture[picture.index("<svg") :]
    return _TAG.sub(lambda tag: tag[0].replace('"', "'"), drawing).translate(_CODES)
