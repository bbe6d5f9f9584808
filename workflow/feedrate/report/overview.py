"""`python -m feedrate.report.overview --settings … --out results/overview.html FILES`.

The report's first page: the question answered in words and one picture, then all the rest. FILES
are the result files of all studies, the data report, the pages of tables and figures, and the
captions (.rst).
"""

import base64
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from docutils.core import publish_parts

from feedrate.config.study import Figure, Table
from feedrate.core import paths
from feedrate.core.files import write_text
from feedrate.report import command, findings, text
from feedrate.report.markup import (
    STYLE,
    Markup,
    content_of,
    el,
    join,
    link,
    row,
    small,
    table,
    void,
    wide_row,
    word,
)
from feedrate.report.rows import ClaimRow, FitRow, Inputs, RunRow
from feedrate.report.settings import OverviewSettings, StudySettings
from feedrate.results.record import Provenance, Record, RecordError, read_record

# Captions of the report's items, for the article: the same files that Snakemake shows.

_SAFE = {
    "raw_enabled": False,
    "file_insertion_enabled": False,
    "_disable_config": True,
    "report_level": 5,
}


def read_captions(files: Iterable[Path]) -> dict[str, Markup]:
    """The captions by name (the file's, without .rst), as HTML."""
    return {file.stem: to_html(file.read_text(encoding="utf-8")) for file in files}


def to_html(source: str) -> Markup:
    """reStructuredText as HTML; directives that read files or pass HTML through are off."""
    parts = publish_parts(source, writer="html", settings_overrides=_SAFE)
    return Markup(parts["body"].strip())


# Where the numbers come from: machine, software, commands, times, and every run's record.

LISTED = 500
"""Runs that the page names one by one."""
_STEPS = {"training": "optimizer step", "inference": "request"}


def machines(settings: StudySettings, runs: Sequence[RunRow]) -> Markup:
    """A table for each device that was run on; what differs between its runs is all named."""
    made = [run for run in runs if run.repeat is not None]
    parts: list[str] = []
    for device in dict.fromkeys(run.device for run in made):
        mine = [run for run in made if run.device == device]
        parts.append(el("h3", f"Machine and software: {settings.label(device)}"))
        parts.append(_machine(settings, device, mine, _first_record(mine)))
    return join(*parts) if parts else el("p", "No run has left a record.")


def every_run(settings: StudySettings, runs: Sequence[RunRow]) -> Markup:
    """Every run with its number and the file that it comes from."""
    made = [run for run in runs if run.repeat is not None]
    lines = [_run(settings, run) for run in made[:LISTED]]
    rest = len(made) - len(lines)
    more = el("p", f"And {text.count(rest, 'run')} more, in results.csv.") if rest > 0 else None
    heads = ("Run", "samples/s", "Started (UTC)", "Took", "Attempt", "Record")
    return join(table(heads, lines, "texts"), more)


def _machine(
    settings: StudySettings, device: str, runs: Sequence[RunRow], record: Record | None
) -> Markup:
    known = record.provenance if record else Provenance()
    setup = settings.setups.get(device)
    facts = {
        "Device model": _distinct(run.device_model for run in runs),
        "Driver": known.driver,
        "CPU cores of a job": _cores(runs, known),
        "Host": _distinct(run.host for run in runs),
        "bf16 by": ", ".join(known.bf16_instructions),
        "Host memory": f"{text.number(known.host_memory_gib, 3)} GiB"
        if known.host_memory_gib
        else "",
        "Model": f"{setup.model} {setup.size}" if setup else "",
        "Parameters": f"{record.model_parameters:,}" if record and record.model_parameters else "",
        "Batch": f"{setup.batch_size} a device, {setup.precision}" if setup else "",
        "Protocol": f"{text.count(setup.steps, _STEPS[settings.task])}, the first "
        f"{setup.warmup_steps} left out; {text.count(setup.repeats, 'repeat')}, interleaved"
        if setup
        else "",
        "Data": _distinct(f"{run.dataset} {run.data_digest[:12]}".strip() for run in runs),
        "Trainer": _distinct(run.library for run in runs),
        "Python": " on ".join(filter(None, (known.python, known.platform))),
        "Packages": ", ".join(f"{name} {version}" for name, version in known.packages.items()),
        "Commit": _distinct(run.commit for run in runs),
        "Source digest": known.source_digest[:12],
        "Machine before the run": ", ".join(
            f"{name} {value}"
            for name, value in known.machine_before.items()
            if value not in ("", None)
        ),
        "Measured": _times(runs),
    }
    lines = [wide_row(name, value, 2) for name, value in facts.items() if value]
    if known.command:
        lines.append(wide_row("Command", el("code", known.command), 2))
    return table(("What", ""), lines, "texts")


def _run(settings: StudySettings, run: RunRow) -> Markup:
    name = f"{settings.label(run.device)}, {text.values_text(run.levels)}, repeat {run.repeat}"
    rate = text.number(run.samples_per_s) if run.status == "ok" else None
    state = word(text.STATUS_WORDS[run.status])
    return row(
        [
            name,
            rate or join(state, small(run.cause)),
            run.started_at.replace("T", " ").removesuffix("Z").partition("+")[0],
            text.seconds(run.duration_s),
            str(run.attempt or text.DASH),
            el("code", run.record) if run.record else text.DASH,
        ]
    )


def _first_record(runs: Sequence[RunRow]) -> Record | None:
    """The record of the first good run, else of the first that can be read."""
    for run in sorted(runs, key=lambda run: run.status != "ok"):
        try:
            return read_record(Path(run.record))
        except (RecordError, OSError):
            continue
    return None


def _cores(runs: Sequence[RunRow], known: Provenance) -> str:
    granted = _distinct(str(run.cores_granted) for run in runs if run.cores_granted)
    host = f" of {known.cores_of_host} of the host" if granted and known.cores_of_host else ""
    threads = f"; {text.count(known.intraop_threads or 0, 'thread')} a process"
    return granted + host + (threads if known.intraop_threads else "")


def _times(runs: Sequence[RunRow]) -> str:
    times = sorted(run.started_at for run in runs if run.started_at)
    if not times:
        return ""
    first, last = (time[:16].replace("T", " ") for time in (times[0], times[-1]))
    return f"first run started {first}, last {last} (UTC)"


def _distinct(values: Iterable[str]) -> str:
    """The value, or all where runs differ."""
    return "; ".join(dict.fromkeys(value for value in values if value))


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
        machines(study, runs),
        el("h3", "Every run"),
        every_run(study, runs),
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
