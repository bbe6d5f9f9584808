"""Predictions of the rate after a change of a setting, and the ledger of their errors.

Two rules predict a rate from what was measured before the change. A part (the loader, the model)
that the change affects is taken from another cell that has it.

- `parts`: the rate changes as the rate that follows from the parts alone (`Parts.rate`).
- `virtual`: a faster loader saves what a virtual speed-up of one of its stages saved
  (C. Curtsinger and E. Berger, "Coz", SOSP 2015), times the ratio of the times that the two save.

A line of the ledger holds a prediction, stored before the change runs and never edited, and a hash
of it and of the hash in the line before, so that an edit breaks the chain. Results are compared
with the lines when a report is made, and are not stored.
"""

import fcntl
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean, median
from typing import Literal, NamedTuple, get_args

import msgspec

from feedrate.config.spec import LoadingStage, RunSpec
from feedrate.config.values import Level, Strict, subset
from feedrate.core.errors import LogError
from feedrate.core.files import canonical_json, digest_value, write_json
from feedrate.core.paths import EVENTS_NAME, RECORD_NAME
from feedrate.jobs.events import RankEvents, read_run_events
from feedrate.results.loader_model import predict
from feedrate.results.params import BATCH, DECODE, TOKENS, WORKERS
from feedrate.results.record import Record, read_record
from feedrate.results.statistics import CONFIDENCE, Estimate, median_interval

LOADING = get_args(LoadingStage)
"""The stages of the loader."""
Rule = Literal["parts", "virtual"]
SMALL = 0.03
"""The gain up to which none is said to be measurable: the default of `smallest_effect`."""


class Parts(NamedTuple):
    """Seconds of a sample in one loader process and in the model, each alone, and the CPU seconds
    of both (0: unknown)."""

    load_s: float
    model_s: float
    load_cpu_s: float = 0.0
    model_cpu_s: float = 0.0

    def rate(self, workers: int, cores: float) -> float:
        """Samples/s of training by the loader model; with workers, at most what the cores allow."""
        found = predict(workers, self.model_s, self.load_s)
        known = workers and self.load_cpu_s and self.model_cpu_s
        return min(found, cores / (self.load_cpu_s + self.model_cpu_s)) if known else found


class Cell(NamedTuple):
    """The ok runs of a cell on one machine, with the events of their only rank."""

    spec: RunSpec
    records: list[Record]
    events: list[RankEvents]

    @property
    def samples_per_s(self) -> float:
        """Median of the runs."""
        return median(r.measurement.samples_per_s for r in self.records if r.measurement)

    @property
    def cores(self) -> float:
        """Cores that the loader and the model share."""
        return min(record.provenance.cores_granted or 1 for record in self.records)

    @property
    def workers(self) -> int:
        """Loader processes."""
        return self.spec.settings.loader.workers

    @property
    def parts(self) -> list[Parts]:
        """Those of each round that measured both."""
        found, at_once = [], max(1, min(self.workers, self.cores))
        for events in self.events:
            rounds = {(c.kind, c.round): c for c in events.ceilings if c.samples}
            for (kind, number), m in rounds.items():
                if kind == "model" and (one := rounds.get(("loader", number))):
                    times = at_once * one.wall_s / one.samples, m.wall_s / m.samples
                    cpu = (one.cpu_s or 0) / one.samples, (m.cpu_s or 0) / m.samples
                    found.append(Parts(*times, *cpu))
        return found

    @property
    def saved(self) -> dict[tuple[str, float], list[float]]:
        """Share of the same round's live time that each virtual speed-up saved."""
        found: dict[tuple[str, float], list[float]] = {}
        for events in self.events:
            live = {c.round: c.wall_s / c.samples for c in events.ceilings if c.kind == "live"}
            for v in events.virtuals:
                if v.round in live and v.wall_s > v.delayed_s:
                    share = 1 - (v.wall_s - v.delayed_s) / v.samples / live[v.round]
                    found.setdefault((v.stage, v.share), []).append(share)
        return found

    def saves(self, shorter: float) -> list[float]:
        """The share of a step that is saved, by round, if loading takes less time by the share
        `shorter`; from the nearest virtual speed-up. Empty if unknown, as of slower loading."""
        timed = [events.stages.seconds for events in self.events if events.stages]
        times = {name: fmean(one.get(name, 0.0) for one in timed) for name in LOADING if timed}
        tried = [(stage, share) for stage, share in self.saved if times.get(stage)]
        if not tried or shorter <= 0:
            return []
        stage, share = min(tried, key=lambda one: abs(one[1] - shorter))
        ratio = shorter * sum(times.values()) / (share * times[stage])
        return [ratio * saved for saved in self.saved[stage, share]]

    def gains(self) -> list[str]:
        """The gain of each virtual speed-up, as `halving decode gains 31% (27% to 35%)`."""
        words = {0.5: "halving", 1.0: "leaving out"}
        return [
            f"{words.get(share, f'shortening by {share:.0%}')} {stage} "
            + gain_text(median_interval([1 / (1 - one) for one in saved], CONFIDENCE))
            for (stage, share), saved in self.saved.items()
        ]


def gain_text(ratio: Estimate) -> str:
    """The gain of a ratio of rates. Where its interval includes 0, there may be none; there is no
    measurable gain only where the interval has no gain that matters."""
    # Below 1%, a decimal tells a gain from none.
    gain, *ends = (f"{r - 1:.{int(abs(r - 1) < 0.0095)}%}" for r in ratio if r is not None)
    if ratio.low is None or ratio.high is None:
        return f"gains {gain}, measured once"
    if ratio.low <= 1 <= ratio.high:
        none = ratio.high <= 1 + SMALL or ratio.value < 1.005
        gain = "nothing measurable" if none else f"{gain} or nothing"
    return f"gains {gain} ({' to '.join(ends)})"


def predictions(
    cell: Cell, after: RunSpec, known: Sequence[Cell]
) -> Iterator[tuple[Rule, Estimate]]:
    """The rates that the rules predict for `cell` with the settings of `after`, samples/s: medians
    over the rounds, which vary as the live blocks do. `known` are the cells of the same machine; a
    rule that needs what none of them has measured predicts nothing."""
    rate, workers = cell.samples_per_s, after.settings.loader.workers
    loaders, models = _having(known, loader_of, after), _having(known, model_of, after)
    rounds = [
        (old, Parts(loader.load_s, model.model_s, loader.load_cpu_s, model.model_cpu_s))
        for old, loader, model in zip(cell.parts, loaders, models, strict=False)
    ]
    ratios = [b.rate(workers, cell.cores) / a.rate(cell.workers, cell.cores) for a, b in rounds]
    if ratios:
        blocks = [c for e in cell.events for c in e.ceilings if c.kind == "live"]
        live = [block.samples / block.wall_s for block in blocks] or [1.0] * len(ratios)
        rates = [rate * now / median(live) * r for now, r in zip(live, ratios, strict=False)]
        yield "parts", median_interval(rates, CONFIDENCE)
    if ratios and workers == cell.workers and model_of(after) == model_of(cell.spec):
        saved = cell.saves(1 - median(b.load_s / a.load_s for a, b in rounds))
        if saved and max(saved) < 1:
            yield "virtual", median_interval([rate / (1 - one) for one in saved], CONFIDENCE)


def loader_of(spec: RunSpec) -> object:
    """The settings that determine the time of loading a sample in one process."""
    loader = msgspec.structs.replace(spec.settings.loader, workers=0, max_tokens=1)
    return loader, spec.settings.model, spec.dataset


def model_of(spec: RunSpec) -> object:
    """The settings that determine the time of computing a sample."""
    return msgspec.structs.replace(spec.settings, loader=None), spec.settings.loader.max_tokens


def _having(
    known: Sequence[Cell], part: Callable[[RunSpec], object], after: RunSpec
) -> list[Parts]:
    """The parts of the cells that have this part of `after`, preferably of those that load alike
    (in the training process, or in others)."""
    having = [cell for cell in known if cell.parts and part(cell.spec) == part(after)]
    alike = [c for c in having if bool(c.workers) == bool(after.settings.loader.workers)]
    return [parts for cell in alike or having for parts in cell.parts]


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
        known = None if self.late else self.measured
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
            _, target = place(cell.records[0], after)
            found = () if (machine, target) in cells else predictions(cell, after, here)
            for rule, rate in found:
                if (rule, *of, target) not in known:
                    yield subset(
                        Prediction,
                        cell.spec,
                        made_at=datetime.now(UTC).isoformat(timespec="seconds"),
                        rule=rule,
                        machine=machine,
                        setting=setting,
                        level=level,
                        target=target,
                        before=cell.samples_per_s,
                        predicted=rate,
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
    target = cells.get((prediction.machine, prediction.target))
    if target is None:
        return subset(Outcome, prediction)
    late = min(r.provenance.started_at for r in target.records) < prediction.made_at
    return subset(Outcome, prediction, measured=target.samples_per_s, late=late)
