"""`python -m feedrate check-claims`: the sources' numbers, recomputed without any training."""

import argparse
import tempfile
from collections import Counter
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from rich.text import Text

from feedrate.cli.display import output, table
from feedrate.config.devices import Device
from feedrate.config.plan import published_settings
from feedrate.config.project import Project, load_project, study_names
from feedrate.config.settings import LoaderSettings, ModelSettings, Settings
from feedrate.config.study import Published
from feedrate.config.values import load
from feedrate.report import text
from feedrate.report.text import counted
from feedrate.results import audit
from feedrate.results.claims import claim_rows
from feedrate.results.columns import Column
from feedrate.results.files import write_csv
from feedrate.results.params import ClaimSettings, claim_settings

AGREES, DIFFERS, CANNOT, DERIVED = "agrees", "differs", "cannot be recomputed", "not printed"
VERDICTS = {"consistent": AGREES, "not": DIFFERS}
STYLES = {DIFFERS: "bold red", CANNOT: "dim", DERIVED: "dim"}
COUNTED = {"parameters": 1, "model_size_gib": 2**30 / 4}
"""Metrics of models to the parameters in a unit; a size is that of fp32."""


class Check(NamedTuple):
    """A printed number, and the one that follows from other numbers or from a model."""

    study: str
    statement: str
    printed: float | None
    recomputed: float | None
    outcome: str

    @property
    def difference(self) -> float | None:
        """Share of the printed number."""
        return self.recomputed / self.printed - 1 if self.recomputed and self.printed else None


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of this command."""
    parser.add_argument("--csv", metavar="FILE", type=Path, help="write the rows to this file too")


def check_claims(options: argparse.Namespace) -> int:
    """Print what was recomputed. A difference is a finding and not an error."""
    config = load(Path("config/config.yaml"), dict[str, Any])
    found = checks(load_project(Path(), config | {"studies": study_names(Path())}))
    if options.csv:
        columns = [Column(name, "text", "", "") for name in (*Check._fields, "difference")]
        rows = (one._asdict() | {"difference": one.difference} for one in found)
        write_csv(options.csv, columns, rows)
    console, heads = output(), ("statement", "printed", "recomputed", "difference", "outcome")
    for study, group in text.grouped(found, lambda one: one.study).items():
        lines = (
            (
                Text(one.statement),
                text.DASH if one.printed is None else text.exact(one.printed),
                text.number(one.recomputed),
                text.signed_share(one.difference),
                Text(one.outcome, STYLES.get(one.outcome, "")),
            )
            for one in group
        )
        console.print(table(study, heads, lines, left=("outcome",), wrapped=heads[:1]), "")
    counts = Counter(one.outcome for one in found)
    told = ", ".join(f"{outcome} {number}" for outcome, number in counts.items())
    console.print(f"{counted(len(found), 'statement')}: {told}.")
    return 0


def checks(project: Project) -> list[Check]:
    """All checks of a project, by study."""
    kinds = (_ratios, _rates, _editions, _models, _fits, _memory)
    found = [one for kind in kinds for one in kind(project)]
    return sorted(found, key=lambda one: one.study)


def _ratios(project: Project) -> Iterator[Check]:
    """A source's statements about ratios, and the same from the published numbers of both cells."""
    for name, study in claim_settings(project).studies.items():
        devices = list(dict.fromkeys(row.device for row in study.published))
        alone = ClaimSettings(studies={name: msgspec.structs.replace(study, measured=devices)})
        for row in (row for row in claim_rows([], alone) if row["of"] != "ours"):
            values = row.get("published_value"), row.get("recomputed_from_published")
            outcome = VERDICTS.get(row.get("published_verdict", ""), CANNOT)
            yield Check(name, f"{row['statement']}: {row['expression']}", *values, outcome)


def _rates(project: Project) -> Iterator[Check]:
    """Each printed rate: the seconds that it was timed for, and its share of the peak."""
    for name, row in _rows(project, audit.RATE):
        peaks = {one.precision: one.datasheet_tflops for one in project.devices[row.device].peaks}
        precision = published_settings(project, name, row).train.precision.removesuffix("_full")
        found, cell = audit.rate(row, precision, peaks), _cell(project, row)
        if found.timed_s:
            about = f"{cell} ({row.edition}): seconds timed"
            yield Check(name, about, None, found.timed_s, DERIVED)
        if found.mfu:
            about = f"{cell} ({row.edition}): share of the peak in {precision}, at most 1"
            yield Check(name, about, None, found.mfu, AGREES if found.mfu <= 1 else DIFFERS)


def _editions(project: Project) -> Iterator[Check]:
    """Each printed rate, and that of its cell in the edition before."""
    for name, study in project.studies.items():
        rates = [row for own, row in _rows(project, audit.RATE) if own == name and row.levels]
        rates.sort(key=lambda row: study.source.editions.index(row.edition))
        for cell, rows in text.grouped(rates, lambda row: _cell(project, row)).items():
            for old, new in pairwise(rows):
                about = f"{cell}: the same in {new.edition} as in {old.edition}"
                outcome = AGREES if old.value == new.value else DIFFERS
                yield Check(name, about, old.value, new.value, outcome)


def _models(project: Project) -> Iterator[Check]:
    """Parameters and sizes of models, counted on the meta device, where no weight takes memory."""
    from feedrate.data.manifest import TOKENIZER
    from feedrate.data.prepare import train_tokenizer
    from feedrate.models.build import build_bare

    @cache
    def parameters(model: ModelSettings) -> int:
        return build_bare(model, LoaderSettings(max_tokens=1), Path(folder)).parameters

    with tempfile.TemporaryDirectory() as folder:
        train_tokenizer(["any"], Path(folder) / TOKENIZER)
        for name, row in _rows(project, *COUNTED):
            model = published_settings(project, name, row).model
            model = msgspec.structs.replace(model, checkpoint=None, revision=None)
            value = parameters(model) / COUNTED[row.metric]
            outcome = AGREES if audit.as_printed(value, row.value) else DIFFERS
            about = f"{model.name} {model.size}: {row.metric.replace('_', ' ')} ({row.edition})"
            yield Check(name, about, row.value, value, outcome)


def _fits(project: Project) -> Iterator[Check]:
    """Whether each cell with a printed rate fits into its device's memory (docs/memory.md)."""
    from feedrate.models.memory import ERROR, peak_gib, room_gib

    known = set()
    for name, row in _rows(project, audit.RATE):
        settings, device, batch = _job(project, name, row)
        room = room_gib(settings, device) if project.studies[name].task == "training" else None
        about = f"{_cell(project, row)}: batch {batch} fits into {room or 0:.0f} GiB, counted"
        if room is not None and (name, about) not in known:
            known.add((name, about))
            value = peak_gib(settings, device, batch)
            outcome = AGREES if value * (1 - ERROR) <= room else DIFFERS
            yield Check(name, about, None, value, outcome)


def _memory(project: Project) -> Iterator[Check]:
    """Each printed use of memory, and the counted one."""
    from feedrate.models.memory import ERROR, active_gib, peak_gib

    for name, row in _rows(project, "peak_memory_gib", "active_memory_reduction"):
        settings, device, batch = _job(project, name, row)
        value = peak_gib(settings, device, batch)
        if row.metric == "active_memory_reduction":
            model = msgspec.structs.replace(settings.model, checkpointing=False)
            plain = msgspec.structs.replace(settings, model=model)
            value = active_gib(plain, device, batch) / active_gib(settings, device, batch)
        outcome = AGREES if abs(value / row.value - 1) <= ERROR else DIFFERS
        about = f"{_cell(project, row)} ({row.edition}): {row.metric.replace('_', ' ')}, counted"
        yield Check(name, about, row.value, value, outcome)


def _job(project: Project, name: str, row: Published) -> tuple[Settings, Device, int]:
    """Settings, devices and batch of a published number."""
    settings = published_settings(project, name, row)
    device = msgspec.structs.replace(project.devices[row.device], count=row.count)
    return settings, device, settings.train.batch_size


def _rows(project: Project, *metrics: str) -> Iterator[tuple[str, Published]]:
    """The published numbers of these metrics, with their study."""
    for name, rows in project.published.items():
        yield from ((name, row) for row in rows if row.metric in metrics)


def _cell(project: Project, row: Published) -> str:
    levels = text.values_text(row.levels) or "settings not stated"
    return f"{project.devices[row.device].label}, {text.counted(row.count, 'device')}: {levels}"
