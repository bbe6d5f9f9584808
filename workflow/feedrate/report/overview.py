"""`python -m feedrate.report.overview --settings … --out results/overview.html FILES`.

The report's first page: the question answered in words and one picture, then all the rest. FILES
are the result files of all studies, the data report, the pages of tables and figures, and the
captions (.rst).
"""

import base64
import sys
from collections.abc import Sequence
from pathlib import Path

from feedrate import paths
from feedrate.config.study import Figure, Table
from feedrate.files import write_text
from feedrate.report import command, findings, provenance, text
from feedrate.report.captions import read_captions
from feedrate.report.markup import Markup, content_of, el, join, link, void
from feedrate.report.rows import ClaimRow, FitRow, Inputs
from feedrate.report.settings import OverviewSettings, StudySettings
from feedrate.report.style import STYLE

LEADING = ("answer", "gain")
"""Kinds of the picture beside a study's answer; the first that it has."""

FAILURES = 5
"""Failures that the first page lists one by one."""

_ORDER = (
    "answer",
    "gain",
    "quality",
    "equal",
    "published",
    "ladder",
    "latency",
    "reach",
    "largest",
    "training",
    "throughput",
    "step_time",
    "ceilings",
    "speedup",
    "scaling",
    "cells",
    "winoground",
    "fit",
    "claims",
    "editions",
    "loss",
    "steps",
    "warmup",
    "data",
)
"""Kinds in the order of the article; of one kind the figure stands before the table."""


def render(settings: OverviewSettings, inputs: Inputs) -> str:
    """The article as one piece of HTML that needs nothing from anywhere."""
    captions = read_captions(inputs.with_suffix(".rst"))
    parts: list[str] = []
    for study in settings.studies:
        parts.append(_summary(study, inputs, captions, len(settings.studies) == 1))
    parts.append(_contents(settings))
    for study in settings.studies:
        parts.append(_details(study, inputs, captions))
    return el("div", el("style", Markup(STYLE)), *parts, class_="feedrate")


def _summary(
    study: StudySettings, inputs: Inputs, captions: dict[str, Markup], alone: bool
) -> Markup:
    """The question, the answer for each device, what else the numbers say, and the picture."""
    cells = inputs.cells(study.study)
    scores = inputs.scores(study.study) if inputs.has("quality.csv") else []
    answers = [findings.answer(study, cells, device, scores) for device in study.measured]
    fits = inputs.rows("fit.csv", FitRow, study.study)
    claims = inputs.rows("claims.csv", ClaimRow, study.study)
    found = findings.points(study, cells, fits, claims, scores)
    picture = _leading(study)
    said = " ".join(answer.headline for answer in answers)
    title = el("p", study.title, class_="kicker")
    return join(
        title if alone else None,
        el("h1" if alone else "h2", study.question, id=study.study),
        None if alone else title,  # the line above a study's question parts it from the one before
        _failures(findings.failures(study, cells)),
        *(_box(answer.headline, el("p", answer.detail), answer.found) for answer in answers),
        _picture(study, picture, inputs, said) if picture else None,
        _caption(picture, captions) if picture else None,
        el("ul", *(el("li", el("b", f"{point.lead}: "), point.said) for point in found)),
        el("p", "Source: ", link(study.origin.title, study.origin.address), ".", class_="kicker"),
    )


def _failures(failures: Sequence[str]) -> Markup | None:
    """What went wrong stands first; where it is much, the rest stands with all cells."""
    if not failures:
        return None
    more = len(failures) - FAILURES
    lines = [*failures[:FAILURES], *([f"and {more} more, under all cells"] if more > 0 else [])]
    heading = f"{text.count(len(failures), 'cell')} with runs that do not count"
    return _box(heading, el("ul", *(el("li", line) for line in lines)), good=False)


def _box(heading: str, content: Markup, good: bool) -> Markup:
    class_ = "answer" if good else "answer bad"
    return el("div", el("strong", heading), content, class_=class_)


def _contents(settings: OverviewSettings) -> Markup:
    links = []
    for study in settings.studies:
        items = [
            el("li", el("a", item.title, href=f"#{_anchor(study, item)}")) for item in _items(study)
        ]
        runs = el("li", el("a", "Provenance", href=f"#{study.study}-provenance"))
        several = len(settings.studies) > 1
        title = el("p", study.title, class_="kicker") if several else None
        links.append(join(title, el("ul", *items, runs)))
    return el("nav", el("b", "All results"), *links, aria_label="Contents")


def _details(study: StudySettings, inputs: Inputs, captions: dict[str, Markup]) -> Markup:
    """All tables and figures of a study with their captions, then where the numbers come from."""
    parts: list[str] = [el("h2", f"{study.title}: all results")]
    for item in _items(study):
        parts.append(el("h3", item.title, id=_anchor(study, item)))
        parts.append(_caption(item, captions))
        if isinstance(item, Table):
            parts.append(content_of(_page(inputs, paths.TABLE, study, item)))
        else:
            parts.append(_picture(study, item, inputs, item.title))
    runs = inputs.runs(study.study)
    return join(
        *parts,
        el("h2", "Provenance", id=f"{study.study}-provenance"),
        provenance.machines(study, runs),
        el("h3", "Every run"),
        provenance.every_run(study, runs),
    )


def _caption(item: Table | Figure, captions: dict[str, Markup]) -> Markup:
    """What is seen in an item and how it was measured; empty where no caption was given."""
    if item.caption not in captions:
        return Markup()
    return el("div", captions[item.caption], class_="caption")


def _items(study: StudySettings) -> Sequence[Table | Figure]:
    """Tables and figures in the order of the article, the answer's picture left out."""
    items: list[Table | Figure] = [*study.figures, *study.tables]
    leading = _leading(study)
    rest = (item for item in items if item is not leading)
    return sorted(rest, key=lambda item: _ORDER.index(item.kind))


def _leading(study: StudySettings) -> Figure | None:
    """The picture beside the study's answer, if it has one."""
    for kind in LEADING:
        for figure in study.figures:
            if figure.kind == kind:
                return figure
    return None


def _anchor(study: StudySettings, item: Table | Figure) -> str:
    return f"{study.study}-{'table' if isinstance(item, Table) else 'figure'}-{item.name}"


def _picture(study: StudySettings, figure: Figure, inputs: Inputs, words: str) -> Markup:
    """A figure inside the page, as data: no script in it could run, no name in it can clash."""
    content = _page(inputs, paths.FIGURE, study, figure).read_bytes()
    source = f"data:image/svg+xml;base64,{base64.b64encode(content).decode()}"
    return el("figure", void("img", src=source, alt=words))


def _page(inputs: Inputs, pattern: str, study: StudySettings, item: Table | Figure) -> Path:
    """A page of this study among the inputs."""
    path = pattern.format(study=study.study, table=item.name, figure=item.name)
    return inputs.page(path)


def _main(settings: OverviewSettings, inputs: Inputs, out: Path) -> None:
    write_text(out, render(settings, inputs) + "\n")


if __name__ == "__main__":
    sys.exit(command.run("feedrate.report.overview", __doc__, OverviewSettings, _main))
