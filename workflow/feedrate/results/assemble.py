"""Raw logs to records: `parse_logs` reads the runs of one study and device that need it.

A record names what it was made from. It is made again where it is missing or damaged, where the run
was done again, and where the parser or the facts about the device have changed.
"""

import argparse
import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from feedrate.config.errors import ConfigError
from feedrate.config.reading import convert_text
from feedrate.config.spec import RunSpec
from feedrate.config.values import BETWEEN_LEVELS, parse_levels
from feedrate.core.errors import LogError, fail
from feedrate.core.files import digest_file, digest_value, write_json
from feedrate.core.paths import (
    ANY_EVENTS,
    LOG_NAME,
    OUTCOME_NAME,
    RECORD_NAME,
    SPEC_NAME,
    TRAINER_NAME,
)
from feedrate.jobs.events import RankEvents, read_run_events
from feedrate.logs.text import one_line, read_log
from feedrate.logs.trainer import (
    TrainerFigures,
    evaluation_figures,
    read_evaluations,
    read_trainer,
)
from feedrate.logs.trainer import files as trainer_files
from feedrate.results.checks import Evidence, check_run
from feedrate.results.measurement import (
    Outcome,
    ceilings,
    flops_per_sample,
    measure,
    observe,
    read_outcome,
)
from feedrate.results.record import (
    BAD,
    Check,
    MadeFrom,
    Measurement,
    PixelDistance,
    Provenance,
    Record,
    RecordError,
    Status,
    read_record,
    write_record,
)
from feedrate.results.settings import DeviceFacts

UNCHANGED = "logs_unchanged"
"""Name of the check that a run fails whose logs changed after its record was made from them."""


def parse_logs(runs: Iterable[Path], device: DeviceFacts, parser: str) -> list[Path]:
    """Bring the records of `runs` up to date; the runs whose record was written.

    `parser` is the digest of the code that reads logs. A run that cannot be read gets a record with
    status `failed`, whose cause names the file and the line. Raises OSError where a record cannot
    be written.
    """
    made = MadeFrom(parser=parser, device=digest_value(msgspec.to_builtins(device)))
    return [run for run in runs if current_record(run, device, made)[1]]


def current_record(
    run: Path, device: DeviceFacts, wanted: MadeFrom | None = None
) -> tuple[Record, bool]:
    """The record of a run, and whether it was written now.

    `wanted` gives the parser and the device that it must have been made with; None: any will do.
    Where logs have changed although the outcome, which a job writes last, is the same, the record
    keeps its numbers and fails the check `logs_unchanged`.
    """
    path = run / RECORD_NAME
    files = log_digests(run)
    try:
        earlier = read_record(path)
    except RecordError:
        earlier = None
    if earlier and (known := earlier.made_from.files):
        flagged = any(check.name == UNCHANGED for check in earlier.checks)
        same_job = known.get(OUTCOME_NAME) == files.get(OUTCOME_NAME) is not None
        changed = sorted(n for n in known.keys() | files.keys() if known.get(n) != files.get(n))
        if changed and same_job:
            record = earlier if flagged else _with_changed_logs(earlier, changed)
            if not flagged:
                write_record(path, record)
            return record, not flagged
        made_as_wanted = wanted is None or replace(earlier.made_from, files={}) == wanted
        if not changed and not flagged and made_as_wanted:
            return earlier, False
    elif earlier and wanted is None:
        return earlier, False  # an earlier version of feedrate wrote it, and noted no digests
    record = replace(_built(run, device), made_from=replace(wanted or MadeFrom(), files=files))
    write_record(path, record)
    return record, True


def read_list(name: str) -> list[str]:
    """The lines of a file, or of standard input for `-`."""
    text = sys.stdin.read() if name == "-" else Path(name).read_text(encoding="utf-8")
    return [line for line in text.splitlines() if line.strip()]


def log_digests(run: Path) -> dict[str, str]:
    """SHA-256 of each file that a record is made from, by its path in the run's folder."""
    names = (SPEC_NAME, OUTCOME_NAME, LOG_NAME)
    files = [run / name for name in names] + [
        *run.glob(ANY_EVENTS),
        *trainer_files(run / TRAINER_NAME),
    ]
    return {str(f.relative_to(run)): digest_file(f) for f in sorted(files) if f.is_file()}


def _built(run: Path, device: DeviceFacts) -> Record:
    """The record of a run; a failed one where its logs break the reader."""
    try:
        return build_record(run, device)
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
            cause=one_line(f"{run}: the logs cannot be read: {cause}"),
        )


def _with_changed_logs(record: Record, names: Sequence[str]) -> Record:
    detail = (
        f"{', '.join(names)} changed after the record was made: restore what was there, or remove "
        "the run's folder and make the run again."
    )
    return replace(
        record,
        status="invalid" if record.status == "ok" else record.status,
        cause=record.cause if record.status in BAD else detail,
        checks=[*record.checks, Check(name=UNCHANGED, passed=False, detail=detail)],
    )


def build_record(run_dir: Path, device: DeviceFacts) -> Record:
    """The record of the run in `run_dir`, whatever became of the job.

    Logs that cannot be read make the run `invalid` (or leave it as failed as it is). Raises
    LogError where spec.json is missing or no spec: then there is no telling what was run.
    """
    spec = read_spec(run_dir / SPEC_NAME)
    log = read_log(run_dir / LOG_NAME)
    faults: list[str] = []
    outcome: Outcome | None = None
    ranks: dict[int, RankEvents] = {}
    try:
        outcome = read_outcome(run_dir / OUTCOME_NAME)
        ranks = read_run_events(run_dir)
    except LogError as error:
        faults.append(one_line(str(error)))
    measurement = measure(
        ranks, spec, device.peaks, outcome.host_peak_memory_gib if outcome else None
    )
    checks = [Check(name="logs_readable", passed=not faults, detail=faults[0])] if faults else []
    if measurement:
        observed = observe(ranks, outcome, log)
        checks += check_run(Evidence(spec, measurement, observed, device))
    status, cause = _status(outcome, ranks, measurement, checks)
    first = ranks.get(0, RankEvents())
    return Record(
        study=spec.study,
        device=spec.device,
        cell=spec.cell,
        levels=spec.levels,
        repeat=spec.repeat,
        status=status,
        cause=cause,
        spec=spec,
        model_parameters=first.model.parameters if first.model else None,
        flops_per_sample=flops_per_sample(ranks),
        measurement=measurement,
        ceilings=ceilings(ranks),
        pixels=PixelDistance(
            mean_abs_diff=first.data.pixel_mean_abs_diff, psnr_db=first.data.pixel_psnr_db
        )
        if first.data
        else PixelDistance(),
        trainer=_trainer(first, run_dir),
        evaluation=_evaluation(first, run_dir / TRAINER_NAME),
        checks=checks,
        provenance=_provenance(outcome, first),
    )


def read_spec(path: Path) -> RunSpec:
    """Read spec.json. Raises LogError naming the file."""
    try:
        return msgspec.convert(json.loads(path.read_bytes()), RunSpec)
    except FileNotFoundError:
        raise LogError(f"{path}: no such file; `--run` takes the folder of a run") from None
    except (OSError, ValueError, RecursionError) as error:
        raise LogError(f"{path}: not the spec of a run: {error}") from None


def _status(
    outcome: Outcome | None,
    ranks: dict[int, RankEvents],
    measurement: Measurement | None,
    checks: list[Check],
) -> tuple[Status, str]:
    """Status and cause: the supervisor's word first, then what the checks say of the numbers."""
    failed = [check for check in checks if not check.passed]
    if outcome is None:
        unreadable = next((c.detail for c in failed if c.name == "logs_readable"), "")
        return ("failed", unreadable) if unreadable else _without_outcome(ranks)
    if outcome.status != "ok":
        return outcome.status, one_line(
            outcome.cause or ""
        ) or f"No cause was told; see {LOG_NAME}."
    if failed:
        more = f" ({len(failed) - 1} more checks failed)" if len(failed) > 1 else ""
        return "invalid", failed[0].detail + more
    if measurement is None:
        return "invalid", "The job ended well, but no rank closed a timed window."
    return "ok", one_line(outcome.cause or "")


def _without_outcome(ranks: dict[int, RankEvents]) -> tuple[Status, str]:
    """Status and cause of a job that was killed with its supervisor, by what its ranks told. The
    workflow gives such a run an outcome before it is read here; who calls this by hand may not."""
    errors = [events.error for events in ranks.values() if events.error]
    memory = [error for error in errors if error.out_of_memory]
    told = [f" {error.type}: {error.message}" for error in memory or errors][:1]
    said = one_line(f"The job was killed before it could end.{''.join(told)}")
    return "out_of_memory" if memory else "failed", said


def _trainer(first: RankEvents, run_dir: Path) -> TrainerFigures:
    """From the event where there is one, else from the files and the log.

    Only the files keep optimum-habana's `total_flos`.
    """
    library = first.trainer.library if first.trainer else ""
    known = first.trainer.metrics if first.trainer else {}
    found = read_trainer(run_dir / TRAINER_NAME, library, known)
    return found if known or found.runtime_s is not None else read_trainer(run_dir, library)


def _evaluation(first: RankEvents, folder: Path) -> dict[str, float]:
    values = read_evaluations(folder)
    for event in first.evaluations:
        values |= evaluation_figures(event.split, event.metrics)
    return values


def _provenance(outcome: Outcome | None, first: RankEvents) -> Provenance:
    """Who ran what, when and where; fields that nobody told stay at their defaults."""
    told: dict[str, Any] = {}
    for source in (outcome, first.start):
        if source is not None:
            told |= {
                name: value
                for name in source.__struct_fields__
                if name in Provenance.__struct_fields__
                and (value := getattr(source, name)) is not None
            }
    if isinstance(told.get("command"), list):
        told["command"] = " ".join(told["command"])
    return Provenance(**told)


def main(arguments: list[str] | None = None) -> int:
    """0 where the records are up to date, whatever became of the runs; 1 where one cannot be."""
    parser = argparse.ArgumentParser(prog="feedrate.results.assemble", description=__doc__)
    parser.add_argument("--run", type=Path, help="folder of one run; --out is then its record")
    parser.add_argument("--runs-list", help="file with a run's folder a line; - for stdin")
    parser.add_argument("--device", required=True, help="its registry entry, a Python literal")
    parser.add_argument("--parser", default="", help="digest of the code that reads logs")
    parser.add_argument("--out", type=Path, required=True, help="written last: digests of records")
    options = parser.parse_args(arguments)
    try:
        device = convert_text(options.device, DeviceFacts, "--device")
        if options.run:
            write_record(options.out, build_record(options.run, device))
            return 0
        runs = [Path(line) for line in read_list(options.runs_list)]
        parsed = parse_logs(runs, device, options.parser)
        print(f"{len(parsed)} of {len(runs)} runs were parsed")
        write_json(options.out, {str(run): digest_file(run / RECORD_NAME) for run in runs})
    except (ConfigError, LogError, OSError) as error:
        return fail(parser.prog, error)
    return 0


if __name__ == "__main__":
    sys.exit(main())
