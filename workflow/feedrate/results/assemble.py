"""Raw logs to records. A record is made again if it is missing or damaged, if the job ran again, or
if the parser or the facts about the device have changed."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from feedrate.config.spec import RunSpec
from feedrate.config.values import BETWEEN_LEVELS, parse_levels, subset
from feedrate.core import paths
from feedrate.core.errors import LogError
from feedrate.core.files import digest_file, digest_value, write_json
from feedrate.jobs.events import RankEvents, read_run_events
from feedrate.results.checks import check_run
from feedrate.results.conformity import (
    DISTURBED,
    MOST_ATTEMPTS,
    Evidence,
    disturbances,
    head_starts,
)
from feedrate.results.measurement import flops_per_sample, measure, scores
from feedrate.results.params import DeviceFacts
from feedrate.results.parts import Ranks, ceilings, stages
from feedrate.results.record import (
    Check,
    MadeFrom,
    Outcome,
    Record,
    RecordError,
    read_outcome,
    read_record,
    write_record,
)
from feedrate.results.schema import BAD, Measurement, PixelDistance, Provenance, Status
from feedrate.results.trainer_logs import (
    TrainerFigures,
    one_line,
    read_evaluations,
    read_log,
    read_trainer,
    trainer_files,
)

UNCHANGED = "logs_unchanged"
"""The check that a run fails whose logs changed after its record was made from them."""


def parse_logs(runs_list: Path, device: DeviceFacts, parser: str, out: Path) -> None:
    """Bring the records of the runs in `runs_list` up to date, one run folder per line.

    `parser` is the digest of the code that reads logs. `out` gets the digest of every record, and
    the attempts that were disturbed and are to be made again.
    """
    runs = [Path(line) for line in runs_list.read_text(encoding="utf-8").splitlines()]
    written = update_records(runs, device, parser)
    print(f"parsed {len(written)} of {len(runs)} runs")
    digests = {str(run): digest_file(run / paths.RECORD_NAME) for run in runs}
    disturbed: dict[str, int] = {}
    for run in runs:
        record = read_record(run / paths.RECORD_NAME)
        attempt = record.provenance.attempt or 1
        wrong = {check.name for check in record.checks if not check.passed}
        if wrong & DISTURBED and attempt < MOST_ATTEMPTS:
            disturbed[str(run)] = attempt
    write_json(out, {"digests": digests, "disturbed": disturbed})


def update_records(runs: Iterable[Path], device: DeviceFacts, parser: str) -> list[Path]:
    """Bring records up to date; return the runs whose record was written. Raises OSError where a
    record cannot be written."""
    made = MadeFrom(parser=parser, device=digest_value(msgspec.to_builtins(device)))
    return [run for run in runs if current_record(run, device, made)[1]]


def current_record(
    run: Path, device: DeviceFacts, wanted: MadeFrom | None = None
) -> tuple[Record, bool]:
    """The record of a run, and whether it was written now. `wanted` names the parser and the device
    that it must have been made with; None: any will do. Where logs have changed although the
    outcome, which a job writes last, is the same, the record fails the check `logs_unchanged`."""
    path, files = run / paths.RECORD_NAME, _log_digests(run)
    try:
        earlier = read_record(path)
    except RecordError:
        earlier = None
    if earlier:
        known = earlier.made_from.files
        changed = sorted(n for n in known.keys() | files.keys() if known.get(n) != files.get(n))
        flagged = any(check.name == UNCHANGED for check in earlier.checks)
        if changed and paths.OUTCOME_NAME in known and paths.OUTCOME_NAME not in changed:
            if not flagged:
                earlier = _with_changed_logs(earlier, changed)
                write_record(path, earlier)
            return earlier, not flagged
        target = wanted or earlier.made_from
        if wanted or known:  # an earlier version of feedrate noted no digests
            target = replace(target, files=files)
        if earlier.made_from == target and not flagged:
            return earlier, False
    record = replace(_read_run(run, device), made_from=replace(wanted or MadeFrom(), files=files))
    write_record(path, record)
    return record, True


def _log_digests(run: Path) -> dict[str, str]:
    """SHA-256 of each file that a record is made from, by its path in the run's folder."""
    files = [run / name for name in (paths.SPEC_NAME, paths.OUTCOME_NAME, paths.LOG_NAME)]
    files += [*run.glob(paths.ANY_EVENTS), *trainer_files(run / paths.TRAINER_NAME)]
    return {str(f.relative_to(run)): digest_file(f) for f in sorted(files) if f.is_file()}


def _with_changed_logs(record: Record, names: Sequence[str]) -> Record:
    detail = (
        f"{', '.join(names)} changed after the record was made: restore the logs, or delete the "
        "run's folder to repeat the run."
    )
    return replace(
        record,
        status="invalid" if record.status == "ok" else record.status,
        cause=record.cause if record.status in BAD else detail,
        checks=[*record.checks, Check(name=UNCHANGED, passed=False, detail=detail)],
    )


def _read_run(run: Path, device: DeviceFacts) -> Record:
    """The record of a run; a failed one, with the reason, where its logs break the parser."""
    try:
        record = build_record(run, device)
        if run.name.startswith("rep") and run.name != f"rep{record.repeat}":
            raise LogError(f"{paths.SPEC_NAME} is that of repeat {record.repeat}")
        return record
    except Exception as error:  # one bad run must not cost the others their records
        cause = str(error) if isinstance(error, LogError) else f"{type(error).__name__}: {error}"
        study, device_name, cell, repeat = run.parts[-4:]
        return Record(
            study=study,
            device=device_name,
            cell=cell,
            levels=parse_levels(cell, BETWEEN_LEVELS),
            repeat=int(repeat.removeprefix("rep")),
            status="failed",
            cause=one_line(f"The logs in {run} cannot be read: {cause}"),
        )


def build_record(run: Path, device: DeviceFacts) -> Record:
    """The record of a run, however the job ended. Logs that cannot be read make it `invalid`,
    unless it failed. Raises LogError if spec.json is missing or wrong: nothing else describes the
    run."""
    spec = read_spec(run / paths.SPEC_NAME)
    outcome, ranks, checks = _read_logs(run)
    peak_gib = outcome.host_peak_memory_gib if outcome else None
    measurement = measure(ranks, spec, device.peaks, peak_gib)
    if measurement:
        log = read_log(run / paths.LOG_NAME)
        checks += check_run(Evidence(spec, measurement, device, ranks, outcome, log))
    status, cause = _status(outcome, ranks, measurement, checks)
    first, alone = ranks.get(0, RankEvents()), ceilings(ranks)
    return subset(
        Record,
        spec,
        status=status,
        cause=cause,
        spec=spec,
        model_parameters=first.model.parameters if first.model else None,
        flops_per_sample=flops_per_sample(ranks),
        measurement=measurement,
        ceilings=alone,
        stages=stages(ranks),
        pixels=PixelDistance(
            **{n: getattr(first.data, f"pixel_{n}", None) for n in PixelDistance.__struct_fields__}
        ),
        trainer=_trainer(first, run),
        evaluation=read_evaluations(run / paths.TRAINER_NAME),
        scores=scores(first.evaluations),
        winoground=next((one.winoground for one in first.evaluations), ""),
        checks=checks,
        disturbances=[*disturbances(ranks)[1], *head_starts(spec, measurement, alone)],
        provenance=_provenance(outcome, first),
    )


def read_spec(path: Path) -> RunSpec:
    """Read spec.json. Raises LogError naming the file."""
    try:
        return msgspec.convert(json.loads(path.read_bytes()), RunSpec)
    except FileNotFoundError:
        raise LogError(f"{path}: no such file") from None
    except (OSError, ValueError, RecursionError) as error:
        raise LogError(f"{path}: not the spec of a run: {error}") from None


def _read_logs(run: Path) -> tuple[Outcome | None, Ranks, list[Check]]:
    """Outcome and events, and a failed check if one of the files is not valid."""
    outcome: Outcome | None = None
    try:
        outcome = read_outcome(run / paths.OUTCOME_NAME)
        return outcome, read_run_events(run), []
    except LogError as error:
        detail = one_line(str(error))
        return outcome, {}, [Check(name="logs_readable", passed=False, detail=detail)]


def _status(
    outcome: Outcome | None, ranks: Ranks, measurement: Measurement | None, checks: list[Check]
) -> tuple[Status, str]:
    """Status and cause: the supervisor decides first, then the checks of the numbers."""
    failed = [check.detail for check in checks if not check.passed]
    if outcome is None:
        unreadable = next((c.detail for c in checks if c.name == "logs_readable"), "")
        return ("failed", unreadable) if unreadable else _without_outcome(ranks)
    cause = one_line(outcome.cause or "")
    if outcome.status != "ok":
        return outcome.status, cause or f"No cause was given; see {paths.LOG_NAME}."
    if failed:
        others = len(failed) - 1
        more = f" ({others} more check{'s' * (others != 1)} failed)" * bool(others)
        return "invalid", failed[0] + more
    if measurement is None:
        return "invalid", "The job ended well, but no rank closed a timed window."
    return "ok", cause


def _without_outcome(ranks: Ranks) -> tuple[Status, str]:
    """Status and cause of a job that was killed with its supervisor, from its ranks' events. The
    workflow writes an outcome for such a run before it is read here; other callers may not."""
    errors = [events.error for events in ranks.values() if events.error]
    memory = [error for error in errors if error.out_of_memory]
    reasons = [[error.type, error.message] for error in memory or errors][:1]
    why = [": ".join(filter(None, one)) for one in reasons]
    cause = one_line(" ".join(["The job was killed before it could end.", *why]))
    return "out_of_memory" if memory else "failed", cause


def _trainer(first: RankEvents, run: Path) -> TrainerFigures:
    """The Trainer's figures from its event and its files, which alone have optimum-habana's
    `total_flos`."""
    library = first.trainer.library if first.trainer else ""
    known = first.trainer.metrics if first.trainer else {}
    return read_trainer(run / paths.TRAINER_NAME, library, known)


def _provenance(outcome: Outcome | None, first: RankEvents) -> Provenance:
    """The provenance from outcome and events; unknown fields keep their defaults."""
    known: dict[str, Any] = {}
    for source in (outcome, first.start):
        for name in Provenance.__struct_fields__:
            if (value := getattr(source, name, None)) is not None:
                known[name] = value
    if isinstance(known.get("command"), list):
        known["command"] = " ".join(known["command"])
    for note in first.notes:
        if note.about.endswith("trace"):  # a failure is about `ceiling trace`
            known["trace"] = note.message if note.about == "trace" else f"none: {note.message}"
    return Provenance(**known)
