"""The ledger of predictions: each is stored with a hash before the change runs, and never edited.

A line holds a prediction, and a hash of it and of the hash in the line before, so that an edit
breaks the chain. Results are compared with the lines when a report is made, and are not stored.
"""

import fcntl
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from feedrate.config.spec import RunSpec
from feedrate.config.values import Level, Strict
from feedrate.core.errors import LogError
from feedrate.core.files import canonical_json, digest_value, write_json
from feedrate.core.paths import EVENTS_NAME, RECORD_NAME
from feedrate.jobs.events import read_run_events
from feedrate.results.predictions import Cell, Rule, predictions
from feedrate.results.record import Record, read_record
from feedrate.results.settings import DECODE, WORKERS
from feedrate.results.statistics import Estimate

TOKENS, BATCH = "loader.max_tokens", "train.batch_size"


class Prediction(Strict, kw_only=True):
    """The rate of a cell after the change of a setting to another level: a line of the ledger."""

    made_at: str
    """UTC, ISO 8601."""
    rule: Rule
    study: str
    device: str
    cell: str
    machine: str
    setting: str
    level: Level
    target: str
    """Digest of all that is trained after the change."""
    before: float
    """Samples/s of the cell."""
    predicted: Estimate
    """Samples/s after the change."""
    runs: list[str]
    """Digests of the events of the cell's runs, from which it was made."""
    hash: str = ""

    def after(self, lines: Sequence["Prediction"]) -> "Prediction":
        """The same with its hash as the line after `lines`."""
        bare = msgspec.to_builtins(self) | {"hash": lines[-1].hash if lines else ""}
        return msgspec.structs.replace(self, hash=digest_value(bare))


class Outcome(Prediction, kw_only=True):
    """A prediction, and the samples/s that were measured after it, if the change has run."""

    measured: float | None = None
    late: bool = False
    """The change had run before: the prediction does not count."""

    @property
    def error(self) -> float | None:
        """Predicted over measured rate, less 1, of a prediction that counts."""
        known = self.measured if not self.late else None
        return known and self.predicted.value / known - 1


class WouldHelp(Strict, kw_only=True):
    """would_help.json of a study."""

    fault: str
    """Why no prediction counts; empty if the ledger is whole."""
    gains: list[tuple[str, str, list[str]]]
    """Device, cell, and what its virtual speed-ups gain."""
    outcomes: list[Outcome]


NO_GAINS = WouldHelp(fault="", gains=[], outcomes=[])

Place = tuple[str, str]
"""A machine, and the digest of what is trained there."""


def predict_changes(records_list: Path, ledger: Path, out: Path) -> None:
    """Add predictions of changes that have not run to `ledger`, and compare all with the runs of
    `records_list` (a record's path per line); `out` is would_help.json."""
    folders = [Path(line).parent for line in records_list.read_text("utf-8").splitlines()]
    cells = measured_cells(folders)
    ledger.parent.mkdir(parents=True, exist_ok=True)
    with ledger.open("a+", encoding="utf-8") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)  # the studies share it
        stream.seek(0)
        lines, fault = read_lines(stream.read().splitlines(), str(ledger))
        for one in [] if fault else new_predictions(cells, lines):
            lines.append(one.after(lines))
            stream.write(canonical_json(msgspec.to_builtins(lines[-1])) + "\n")
    studies = {folder.parts[-4] for folder in folders}
    gains = [(c.spec.device, c.spec.cell, c.gains()) for c in cells.values() if c.saved]
    outcomes = [outcome(one, cells) for one in lines if one.study in studies]
    write_json(out, msgspec.to_builtins(WouldHelp(fault=fault, gains=gains, outcomes=outcomes)))


def measured_cells(folders: Sequence[Path]) -> dict[Place, Cell]:
    """The cells of the ok runs that train on one rank."""
    cells: dict[Place, Cell] = {}
    for folder in folders:
        record = read_record(folder / RECORD_NAME)
        spec = record.spec
        if record.status == "ok" and spec and spec.task == "training" and spec.count == 1:
            cell = cells.setdefault(place(record, spec), Cell(spec, [], []))
            cell.records.append(record)
            with suppress(LogError, KeyError):  # such a run tells its rate only
                cell.events.append(read_run_events(folder)[0])
    return cells


def place(record: Record, spec: RunSpec) -> Place:
    """The machine of a record, and the digest of what `spec` trains, but for the seed."""
    made = record.provenance
    trained = msgspec.to_builtins((spec.device, spec.kind, spec.dataset, spec.settings))
    return f"{made.device_model}, {made.host}", digest_value(trained)


def new_predictions(
    cells: Mapping[Place, Cell], lines: Sequence[Prediction]
) -> Iterator[Prediction]:
    """By each rule, all changes of one setting that have neither run nor been predicted."""
    known = {(one.rule, one.study, one.device, one.cell, one.machine, one.target) for one in lines}
    for (machine, _), cell in cells.items():
        here = [other for (where, _), other in cells.items() if where == machine]
        of = cell.spec.study, cell.spec.device, cell.spec.cell, machine
        for setting, level in changes(cell.spec):
            part, _, name = setting.partition(".")
            after = cell.spec.changed(part, **{name: level})
            target = place(cell.records[0], after)
            for rule, found in predictions(cell, after, here) if target not in cells else ():
                if (rule, *of, target[1]) not in known:
                    yield Prediction(
                        made_at=datetime.now(UTC).isoformat(timespec="seconds"),
                        rule=rule,
                        **dict(zip(("study", "device", "cell", "machine"), of, strict=True)),
                        setting=setting,
                        level=level,
                        target=target[1],
                        before=cell.samples_per_s,
                        predicted=found,
                        runs=[r.made_from.files.get(EVENTS_NAME, "") for r in cell.records],
                    )


def changes(spec: RunSpec) -> list[tuple[str, Level]]:
    """The changes of one setting that are predicted."""
    loader, batch = spec.settings.loader, spec.settings.train.batch_size
    levels: dict[str, tuple[Level, list[Level]]] = {
        DECODE: (loader.decode, ["reference", "host", "cache"]),
        WORKERS: (loader.workers, [0, 1, 2]),
        TOKENS: (loader.max_tokens, [max(1, loader.max_tokens // 2)]),
        BATCH: (batch, [max(1, batch // 2), 2 * batch]),
    }
    return [(name, new) for name, (now, others) in levels.items() for new in others if new != now]


def read_lines(texts: Sequence[str], name: str) -> tuple[list[Prediction], str]:
    """The lines of the ledger `name`, and a sentence if one is not as it was written."""
    lines: list[Prediction] = []
    for number, text in enumerate(texts, start=1):
        with suppress(ValueError):
            line = msgspec.json.decode(text, type=Prediction)
            if line == line.after(lines):
                lines.append(line)
                continue
        return lines, (
            f"{name}, line {number}, was changed after it was written, so no prediction counts: "
            "restore the file, or remove it to begin another."
        )
    return lines, ""


def outcome(prediction: Prediction, cells: Mapping[Place, Cell]) -> Outcome:
    """A prediction with the rate that the runs of its target measured."""
    facts = msgspec.structs.asdict(prediction)
    target = cells.get((prediction.machine, prediction.target))
    if target is None:
        return Outcome(**facts)
    begun = min(record.provenance.started_at for record in target.records)
    return Outcome(**facts, measured=target.samples_per_s, late=begun < prediction.made_at)
