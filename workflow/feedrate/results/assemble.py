"""Raw logs to records: one for each planned run of a study on a device."""

import json
from contextlib import suppress
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from feedrate.config.devices import Device
from feedrate.config.spec import RunSpec
from feedrate.config.values import copy_fields
from feedrate.core import paths
from feedrate.core.errors import LogError
from feedrate.core.files import digest_file, write_json
from feedrate.jobs.events import RankEvents, read_run_events
from feedrate.jobs.workplace import cause_of_missing, is_complete, parts_of
from feedrate.results import conformity, trainer_logs
from feedrate.results.checks import check_run
from feedrate.results.measurement import flops_per_sample, measure, scores
from feedrate.results.parts import Ranks, ceilings, stages
from feedrate.results.record import DISTURBED_NAME, Check, Outcome, Record, write_records
from feedrate.results.schema import Measurement, PixelDistance, Provenance, Status
from feedrate.results.study_plan import PlannedRun, read_plan
from feedrate.results.trainer_logs import one_line

T = TypeVar("T")
LOGS = (
    paths.SPEC_NAME,
    paths.LOG_NAME,
    paths.ANY_EVENTS,
    *(f"{paths.TRAINER_NAME}/{name}" for name in trainer_logs.FILES),
)
"""The files of a run that its record is made from."""


def parse_logs(plan: Path, device: str, results: Path) -> None:
    """Write the records of a device's planned runs into the folder of the study's results, and the
    folders of the runs that other work disturbed and that are to be made again."""
    study = read_plan(plan)
    runs = [run for run in study.runs if run.device == device]
    records = [read_run(study.name, run, study.project.devices[device]) for run in runs]
    write_records(results, device, records)
    disturbed = []
    for record in records:
        failed = {check.name for check in record.checks if not check.passed}
        is_last = record.provenance.attempt >= conformity.MOST_ATTEMPTS
        if not is_last and not failed.isdisjoint(conformity.DISTURBED):
            disturbed.append(record.folder)
    write_json(results / device / DISTURBED_NAME, disturbed)
    print(f"parsed {len(runs)} runs")


def read_run(study: str, run: PlannedRun, device: Device) -> Record:
    """The record of a planned run; a failed one, with the reason, where its logs break the parser,
    and a missing one, with the cause if it is known, where no job has published its folder."""
    folder = Path(run.folder)
    status: Status = "missing"
    if is_complete(folder):
        try:
            record = build_record(folder, device)
            if record.spec and (record.cell, record.repeat) != (run.cell, run.repeat):
                raise LogError(
                    f"{paths.SPEC_NAME} belongs to {record.cell}, repeat {record.repeat}"
                )
            return replace(record, device=run.device, folder=run.folder)
        except Exception as error:  # one bad run must not cost the others their records
            kind = "" if isinstance(error, LogError) else f"{type(error).__name__}: "
            status, cause = "failed", f"The logs in {folder} cannot be read: {kind}{error}"
    else:
        reason = cause_of_missing(folder).removesuffix(".")
        cause = f"{reason[:1].upper()}{reason[1:]}."
    return copy_fields(Record, run, study=study, status=status, cause=one_line(cause))


def build_record(run: Path, device: Device) -> Record:
    """The record of a run, however the job ended. Logs that cannot be read make it `invalid`,
    unless it failed. Raises LogError if spec.json is missing or wrong: nothing else describes the
    run."""
    spec = read_document(run / paths.SPEC_NAME, RunSpec)
    trainer = run / paths.TRAINER_NAME
    outcome: Outcome | None = None
    ranks: Ranks = {}
    checks: list[Check] = []
    try:
        outcome = read_document(run / paths.OUTCOME_NAME, Outcome)
        ranks = read_run_events(run)
    except LogError as error:
        checks.append(Check(name="logs_readable", passed=False, detail=one_line(str(error))))
    if outcome:
        checks += _faults_of_files(run, outcome)
    peak_gib = outcome.host_peak_memory_gib if outcome else None
    measurement = measure(ranks, spec, device.peaks, peak_gib)
    if measurement:
        log = ""
        with suppress(OSError):
            log = (run / paths.LOG_NAME).read_text(encoding="utf-8", errors="replace")
        evidence = conformity.Evidence(spec, measurement, device, ranks, outcome, log)
        checks += check_run(evidence._replace(not_finite=trainer_logs.not_finite(trainer)))
    status, cause = _status(outcome, measurement, checks)
    first, parts = ranks.get(0, RankEvents()), ceilings(ranks)
    pixels = {name: f"pixel_{name}" for name in PixelDistance.__struct_fields__}
    return copy_fields(
        Record,
        spec,
        status=status,
        cause=cause,
        spec=spec,
        model_parameters=first.model.parameters if first.model else None,
        flops_per_sample=flops_per_sample(ranks),
        measurement=measurement,
        ceilings=parts,
        stages=stages(ranks),
        pixels=PixelDistance(**{n: getattr(first.data, key, None) for n, key in pixels.items()}),
        trainer=trainer_logs.read_trainer(trainer, first.trainer),
        evaluation=trainer_logs.read_evaluations(trainer),
        scores=scores(first.evaluations),
        winoground=first.evaluations[0].winoground if first.evaluations else "",
        checks=checks,
        disturbances=[
            *conformity.disturbances(ranks)[1],
            *conformity.head_starts(spec, measurement, parts),
        ],
        provenance=_provenance(outcome, first),
    )


def read_document(path: Path, kind: type[T]) -> T:
    """Read spec.json or outcome.json. Raises LogError naming the file."""
    try:
        return msgspec.convert(json.loads(path.read_bytes()), kind)
    except FileNotFoundError:
        raise LogError(f"{path}: no such file") from None
    except (OSError, ValueError, RecursionError) as error:
        raise LogError(f"{path}: {error}") from None


def _faults_of_files(run: Path, outcome: Outcome) -> list[Check]:
    """The failed checks of logs that differ from what the outcome states, and of its identity."""
    checks, changed = [], []
    for name, digest in sorted(outcome.files.items()):
        if any(fnmatch(name, log) for log in LOGS):
            file = run / name
            if not file.is_file() or digest_file(file) != digest:
                changed.append(name)
    if changed:
        remedy = "restore the logs, or delete the run's folder to repeat the run."
        detail = f"{', '.join(changed)} changed after the run: {remedy}"
        checks.append(Check(name="logs_unchanged", passed=False, detail=detail))
    identity, _ = parts_of(run)
    if identity and outcome.identity not in ("", identity):
        detail = f"The folder {run.name} has the run with the identity {outcome.identity}."
        checks.append(Check(name="identity", passed=False, detail=detail))
    return checks


def _status(
    outcome: Outcome | None, measurement: Measurement | None, checks: list[Check]
) -> tuple[Status, str]:
    """Status and cause: the supervisor decides first, then the checks of the numbers."""
    failed = [check.detail for check in checks if not check.passed]
    if outcome is None:
        return "failed", failed[0]
    cause = one_line(outcome.cause)
    if outcome.status != "ok":
        return outcome.status, cause or f"No cause was given; see {paths.LOG_NAME}."
    if failed:
        return "invalid", failed[0]
    if measurement is None:
        return "invalid", "The job ended well, but no rank closed a timed window."
    return "ok", cause


def _provenance(outcome: Outcome | None, first: RankEvents) -> Provenance:
    """The provenance from outcome and events; unknown fields keep their defaults."""
    fields: dict[str, Any] = {}
    if first.model and first.model.made_on:
        fields["weights_made_on"] = first.model.made_on
    for note in first.notes:
        if note.about.endswith("trace"):  # a failure is about `ceiling trace`
            fields["trace"] = note.message if note.about == "trace" else f"none: {note.message}"
    for name in Provenance.__struct_fields__:
        value = getattr(first.start, name, None)
        if value is not None:
            fields[name] = value
    return copy_fields(Provenance, outcome or Provenance(), **fields)
