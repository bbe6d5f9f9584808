"""The page: each study's answer on its first screen, then why, the source, the method and the runs;
and the stages of the workflow that write tables, figures and the page."""

import re
from collections.abc import Iterator, Sequence
from html import unescape
from pathlib import Path
from typing import Any, NamedTuple, get_args

from markupsafe import Markup

from feedrate.config.project import study_names
from feedrate.config.values import read_yaml
from feedrate.core import paths
from feedrate.core.files import write_text
from feedrate.report import audit, html, provenance, remarks, sentences
from feedrate.report.chart import all_figures
from feedrate.report.study import Part, StudyResults
from feedrate.report.table import Shown, all_tables
from feedrate.results.collect import merge_results

PARTS: dict[Part, str] = {
    "why": "Why: what limits each setting",
    "source": "Compared with the source",
    "method": "Method and noise",
    "runs": "Runs and provenance",
}
"""The folded parts of a study, below its first screen."""
LISTED_FAILURES = 5
"""Failures that the first screen lists one by one."""
_TAG = re.compile(r"<[^<>']*>")
_METADATA = re.compile(r"<metadata>.*?</metadata>", re.DOTALL)
_CODES = str.maketrans({"%": "%25", "#": "%23", "&": "%26", '"': "%22", "\n": " "})
"""The signs of a picture that an address or an attribute cannot hold."""


class Item(NamedTuple):
    """A table or a figure of a study as the page shows it: `picture` is an address, or empty."""

    name: str
    title: str
    table: Shown | None = None
    picture: Markup = Markup()


def tabulate_results(plan: Path, results: Path) -> None:
    """Write the tables of a study as pages into the folder of its results, and remove others."""
    study = StudyResults.read(plan, results)
    pages = {}
    for table in all_tables():
        if item := table.shown(study):
            pages[item.name] = html.render("table.html.j2", title=item.title, shown=item)
    _replace(results / "tables", pages, ".html")


def plot_figures(plan: Path, results: Path) -> None:
    """Draw the figures of a study into the folder of its results, and remove others."""
    from feedrate.report import drawing  # it loads matplotlib, which no table needs

    study = StudyResults.read(plan, results)
    pictures = {}
    for figure in all_figures():
        if picture := figure.draw(study):
            pictures[figure.name] = drawing.as_svg(picture, picture.title or figure.title)
    _replace(results / "figures", pictures, ".svg")


def _replace(folder: Path, texts: dict[str, str], suffix: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    files = {folder / f"{name}{suffix}": content for name, content in texts.items()}
    for file, content in files.items():
        write_text(file, content)
    for other in {*folder.glob(f"*{suffix}")} - files.keys():
        other.unlink()


def write_report(plans: list[Path], results: Path, page: Path) -> None:
    """Merge the result files of all studies in the folder `results`, and write the page: the
    studies of this call first, then the others that have results."""
    names = {plan.name for plan in plans}
    others = [
        file
        for file in sorted(Path(paths.STUDY_PLAN).parent.glob("*.json"))
        if file.name not in names and (results / file.stem / "answers.csv").is_file()
    ]
    studies = [StudyResults.read(file, results / file.stem) for file in [*plans, *others]]
    merge_results([results / study.name for study in studies], results)
    write_text(page, render(studies))


def render(studies: Sequence[StudyResults]) -> str:
    """The page about these studies."""
    title = studies[0].study.title if len(studies) == 1 else "feedrate: results"
    facts = [_facts(study) for study in studies]
    return html.render(
        "page.html.j2", title=title, studies=facts, more=list(_not_run({s.name for s in studies}))
    )


def _facts(study: StudyResults) -> dict[str, Any]:
    """What the template shows of a study."""
    tables = [(table.part, table.shown(study)) for table in all_tables()]
    items: dict[Part, list[Item]] = {part: [] for part in get_args(Part)}
    for part, shown in tables:
        if shown:
            items[part].append(Item(shown.name, shown.title, table=shown))
    for part, item in _figures(study):
        items[part].insert(0, item)
    failures = sentences.failures(study)
    lines, packed = provenance.packed_runs(study)
    return {
        "name": study.name,
        "title": study.study.title,
        "question": study.study.question,
        "source": study.study.source,
        "headline": provenance.headline(study),
        "answers": sentences.answers(study),
        "other_levels": sentences.other_levels(study),
        "rehearsal": sentences.rehearsal(study),
        "failures": failures[:LISTED_FAILURES],
        "more_failures": len(failures) - LISTED_FAILURES,
        "not_tested": sentences.not_tested(study),
        "excluded": sentences.excluded(study),
        "published": audit.published(study),
        "first": items["answer"],
        "parts": [(part, heading, items[part]) for part, heading in PARTS.items()],
        "statements": {
            "why": list(remarks.reasons(study)),
            "method": list(remarks.remarks(study)),
        },
        "machines": list(provenance.machines(study)),
        "runs": lines,
        "packed": packed,
    }


def _figures(study: StudyResults) -> Iterator[tuple[Part, Item]]:
    """The figures that were drawn, the last one first."""
    for figure in reversed(all_figures()):
        file = study.folder / f"figures/{figure.name}.svg"
        if file.is_file():
            svg = file.read_text(encoding="utf-8")
            words = re.search(r"<dc:title>(.*?)</dc:title>", svg, re.DOTALL)
            title = unescape(words[1]) if words else figure.title
            yield figure.part, Item(figure.name, title, picture=_in_address(svg))


def _in_address(picture: str) -> Markup:
    """A picture as a part of an address, inside of double quotes; its title is beside it."""
    drawing = _METADATA.sub("", picture[picture.index("<svg") :])
    return Markup(_TAG.sub(lambda tag: tag[0].replace('"', "'"), drawing).translate(_CODES))


def _not_run(known: set[str]) -> Iterator[tuple[str, str]]:
    """The studies of the project without results: names and questions."""
    for name in study_names(Path()):
        if name not in known:
            yield name, read_yaml(Path(f"config/studies/{name}.yaml")).get("question", name)
