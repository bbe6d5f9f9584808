"""The first page of the report: each study's question, answer, findings and leading figure; then
all its tables and figures; then the provenance of its numbers, down to the record of every run."""

import base64
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from docutils.core import publish_parts

from feedrate.config.statements import read_documents
from feedrate.config.study import Figure, Table
from feedrate.core import paths
from feedrate.core.files import write_text
from feedrate.report import text
from feedrate.report.answers import answer
from feedrate.report.findings import failures, findings
from feedrate.report.markup import (
    Markup,
    content_of,
    el,
    join,
    link,
    page,
    row,
    small,
    table,
    void,
    wide_row,
    word,
)
from feedrate.report.params import OverviewSettings, Setup, StudySettings, from_param
from feedrate.report.rows import ClaimRow, FitRow, Inputs, RunRow
from feedrate.report.sources import outcomes
from feedrate.report.sources import render as render_sources
from feedrate.results.record import Record, RecordError, read_record
from feedrate.results.schema import Provenance

LEADING = ("answer", "gain")
"""Kinds of the figure next to a study's answer; the first one that the study has is used."""
LISTED_FAILURES = 5
"""Failures that the first page lists one by one."""
LISTED_RUNS = 500
"""Runs that the first page lists one by one."""

_SAFE = {
    "raw_enabled": False,
    "file_insertion_enabled": False,
    "_disable_config": True,
    "report_level": 5,
}
"""Settings of docutils: no directive reads a file or passes HTML through."""

Captions = Mapping[str, Markup]
"""Captions as HTML, by file name without .rst."""

_STEPS = {"training": "optimizer step", "inference": "request"}


def write_overview(
    settings: dict[str, Any], out: Path, inputs: list[Path], sources: Path | None = None
) -> None:
    """Write the overview, and to `sources` the page of the sources.

    `settings` come from `params.overview_settings`. Inputs are the result files of all studies, the
    data report, the pages of tables and figures, and the captions (.rst).
    """
    known, files = from_param(settings, OverviewSettings), Inputs(inputs)
    write_text(out, render(known, files))
    if sources:
        found = outcomes(files, [study.study for study in known.studies])
        write_text(sources, render_sources(read_documents(Path()), found))


def read_captions(files: Iterable[Path]) -> Captions:
    """The captions, from the files that Snakemake shows too."""
    return {file.stem: to_html(file.read_text(encoding="utf-8")) for file in files}


def to_html(source: str) -> Markup:
    """reStructuredText as HTML."""
    parts = publish_parts(source, writer="html", settings_overrides=_SAFE)
    return Markup(parts["body"].strip())


def render(settings: OverviewSettings, inputs: Inputs) -> str:
    """The overview as a complete page that needs no other file."""
    captions = read_captions(inputs.with_suffix(".rst"))
    studies = settings.studies
    single = len(studies) == 1
    title = studies[0].title if single else f"feedrate: results of {len(studies)} studies"
    return page(
        title,
        None if single else el("h1", title),
        *(_summary(study, inputs, captions, single) for study in studies),
        el("nav", el("h2", "All results"), *map(_links, studies), aria_label="Contents"),
        *(_details(study, inputs, captions) for study in studies),
    )


def _summary(study: StudySettings, inputs: Inputs, captions: Captions, single: bool) -> Markup:
    """The question, the answer for each device, the leading figure and the findings."""
    cells = inputs.cells(study.study)
    scores = inputs.scores(study.study) if inputs.find("quality.csv") else []
    answers = [answer(study, cells, device, scores) for device in study.measured]
    fits = inputs.rows("fit.csv", FitRow, study.study)
    claims = inputs.rows("claims.csv", ClaimRow, study.study)
    found = findings(study, cells, inputs.runs(study.study), fits, claims, scores)
    figure = _leading(study)
    words = " ".join(one.headline for one in answers)
    return join(
        el("h1" if single else "h2", study.question, id=study.study),
        el("p", study.title, class_="kicker"),
        _failures(failures(study, cells)),
        *(_box(one.headline, el("p", one.detail), good=one.found) for one in answers),
        _picture(study, figure, inputs, words) if figure else None,
        _caption(figure, captions) if figure else None,
        el("ul", *(el("li", el("b", f"{one.lead}: "), one.text) for one in found)),
        _further(study, inputs, claims),
        el("p", "Source: ", link(study.origin.title, study.origin.address), ".", class_="kicker"),
    )


def _further(study: StudySettings, inputs: Inputs, claims: Sequence[ClaimRow]) -> Markup | None:
    """The cost of `repeats: auto`, and what it left open; None where it repeated nothing."""
    made = [run for run in inputs.runs(study.study) if run.device in study.setups]
    made = [run for run in made if run.repeat and not run.measured_as]
    more = [run for run in made if run.repeat > study.setups[run.device].repeats]
    hours = text.number(sum(run.duration_s or 0.0 for run in more) / 3600, 2)
    left = [
        f"{study.label(c.device)}, {text.values_text(c.levels)}"
        for c in inputs.cells(study.study)
        if c.open
    ]
    left += [one.statement for one in claims if one.verdict == "cannot tell"]
    told = (
        f"Further repeats where a decision was open: {text.count(len(more), 'run')}, {hours} hours."
        f" Still open: {'; '.join(dict.fromkeys(left)) or 'nothing'}."
    )
    return el("p", told) if more else None


def _failures(lines: Sequence[str]) -> Markup | None:
    if not lines:
        return None
    more = len(lines) - LISTED_FAILURES
    shown = [*lines[:LISTED_FAILURES], *([f"and {more} more, under all cells"] if more > 0 else [])]
    heading = f"{text.count(len(lines), 'cell')} with failed or rejected runs"
    return _box(heading, el("ul", *(el("li", line) for line in shown)), good=False)


def _box(heading: str, content: Markup, good: bool) -> Markup:
    return el("div", el("strong", heading), content, class_="answer" if good else "answer bad")


def _links(study: StudySettings) -> Markup:
    pages = {**{anchor: item.title for anchor, item in _items(study)}, "provenance": "Provenance"}
    links = (
        el("li", el("a", title, href=f"#{study.study}-{anchor}")) for anchor, title in pages.items()
    )
    return join(el("p", study.title, class_="kicker"), el("ul", *links))


def _details(study: StudySettings, inputs: Inputs, captions: Captions) -> Markup:
    """All tables and figures of a study with their captions, then the provenance."""
    parts: list[str] = [el("h2", f"{study.title}: all results")]
    for anchor, item in _items(study):
        parts.append(el("h3", item.title, id=f"{study.study}-{anchor}"))
        parts.append(_caption(item, captions))
        if isinstance(item, Table):
            parts.append(content_of(_file(inputs, paths.TABLE, study, item)))
        else:
            parts.append(_picture(study, item, inputs, item.title))
    parts.append(el("h2", f"{study.title}: provenance", id=f"{study.study}-provenance"))
    return join(*parts, provenance(study, inputs.runs(study.study)))


def _items(study: StudySettings) -> list[tuple[str, Table | Figure]]:
    """Tables and figures with their anchors, without the leading figure."""
    pages: dict[str, Table | Figure] = {
        **{f"figure-{item.name}": item for item in study.figures},
        **{f"table-{item.name}": item for item in study.tables},
    }
    leading = _leading(study)
    return [(anchor, pages[anchor]) for anchor in study.order if pages[anchor] is not leading]


def _leading(study: StudySettings) -> Figure | None:
    """The figure next to the study's answer, if it has one."""
    figures = {figure.kind: figure for figure in reversed(study.figures)}
    return next((figures[kind] for kind in LEADING if kind in figures), None)


def _caption(item: Table | Figure, captions: Captions) -> Markup:
    """The caption of a table or figure; empty where its file was not given."""
    if item.caption not in captions:
        return Markup()
    return el("div", captions[item.caption], class_="caption")


def _picture(study: StudySettings, figure: Figure, inputs: Inputs, words: str) -> Markup:
    """A figure as data: no script in it can run, and no name in it can clash."""
    content = _file(inputs, paths.FIGURE, study, figure).read_bytes()
    source = f"data:image/svg+xml;base64,{base64.b64encode(content).decode()}"
    return el("figure", void("img", src=source, alt=words))


def _file(inputs: Inputs, pattern: str, study: StudySettings, item: Table | Figure) -> Path:
    return inputs.path(pattern.format(study=study.study, table=item.name, figure=item.name))


# Provenance


def provenance(study: StudySettings, runs: Sequence[RunRow]) -> Markup:
    """A table of facts for each device, then every run with its throughput and its record."""
    made = [run for run in runs if run.repeat is not None]
    parts: list[str] = []
    for device in dict.fromkeys(run.device for run in made):
        parts.append(el("h3", f"Machine and software: {study.label(device)}"))
        parts.append(_machine(study, device, [run for run in made if run.device == device]))
    if not made:
        parts.append(el("p", "No run has a record."))
    parts.append(el("h3", "Every run"))
    heads = ("Run", "samples/s", "Started (UTC)", "Duration", "Attempt", "Record")
    parts.append(table(heads, [_run(study, run) for run in made[:LISTED_RUNS]], "texts"))
    if (more := len(made) - LISTED_RUNS) > 0:
        parts.append(el("p", f"And {text.count(more, 'run')} more, in results.csv."))
    return join(*parts)


def _machine(study: StudySettings, device: str, runs: Sequence[RunRow]) -> Markup:
    """Machine, software, data and protocol; where the runs differ, all values are listed."""
    record = _first_record(runs)
    known = record.provenance if record else Provenance()
    setup, state = study.setups.get(device), known.machine_before
    facts = {
        "Device model": _distinct(run.device_model for run in runs),
        "Driver": known.driver,
        "CPU cores per job": _cores(runs, known),
        "Host": _distinct(run.host for run in runs),
        "bf16 instructions": ", ".join(known.bf16_instructions),
        "Host memory": f"{text.number(known.host_memory_gib, 3)} GiB" * bool(known.host_memory_gib),
        "Model": f"{setup.model} {setup.size}" if setup else "",
        "Parameters": f"{record.model_parameters:,}" if record and record.model_parameters else "",
        "Batch": f"{setup.batch_size} per device, {setup.precision}" if setup else "",
        "Protocol": _protocol(setup, _STEPS[study.task]),
        "Data": _distinct(f"{run.dataset} {run.data_digest[:12]}".strip() for run in runs),
        "Trainer": _distinct(run.library for run in runs),
        "Python": " on ".join(filter(None, (known.python, known.platform))),
        "Packages": ", ".join(f"{name} {version}" for name, version in known.packages.items()),
        "Commit": _distinct(run.commit for run in runs),
        "Source digest": known.source_digest[:12],
        "Machine state before the run": ", ".join(
            f"{name} {value}" for name, value in state.items() if value not in ("", None)
        ),
        "Measured": _times(runs),
    }
    lines = [wide_row(name, value, 2) for name, value in facts.items() if value]
    if known.command:
        lines.append(wide_row("Command", el("code", known.command), 2))
    return table(("Property", ""), lines, "texts")


def _run(study: StudySettings, run: RunRow) -> Markup:
    reason = join(word(text.STATUS_WORDS[run.status]), small(run.cause))
    return row(
        f"{study.label(run.device)}, {text.values_text(run.levels)}, repeat {run.repeat}",
        text.number(run.samples_per_s) if run.status == "ok" else reason,
        run.started_at.replace("T", " ").removesuffix("Z").partition("+")[0],
        text.seconds(run.duration_s),
        str(run.attempt or text.DASH),
        el("code", run.record) if run.record else text.DASH,
    )


def _first_record(runs: Sequence[RunRow]) -> Record | None:
    """The record of the first valid run, otherwise the first that can be read."""
    for run in sorted(runs, key=lambda run: run.status != "ok"):
        try:
            return read_record(Path(run.record))
        except (RecordError, OSError):
            continue
    return None


def _cores(runs: Sequence[RunRow], known: Provenance) -> str:
    granted = _distinct(str(run.cores_granted) for run in runs if run.cores_granted)
    host = f" of the host's {known.cores_of_host}" if granted and known.cores_of_host else ""
    threads = f"; {text.count(known.intraop_threads or 0, 'thread')} per process"
    return granted + host + (threads if known.intraop_threads else "")


def _protocol(setup: Setup | None, step: str) -> str:
    if setup is None:
        return ""
    return (
        f"{text.count(setup.steps, step)}, the first {setup.warmup_steps} left out as warm-up; "
        f"{text.count(setup.repeats, 'repeat')}, interleaved"
    )


def _times(runs: Sequence[RunRow]) -> str:
    times = sorted(run.started_at for run in runs if run.started_at)
    if not times:
        return ""
    first, last = (time[:16].replace("T", " ") for time in (times[0], times[-1]))
    return f"first run started {first}, last {last} (UTC)"


def _distinct(values: Iterable[str]) -> str:
    """The value, or all values where runs differ."""
    return "; ".join(dict.fromkeys(value for value in values if value))
