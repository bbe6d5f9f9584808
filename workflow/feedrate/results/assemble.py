"""parse_log: a run's folder in, its record out."""

import argparse
import json
import sys
from pathlib import Path
from typing import Any, Literal

import msgspec

from feedrate.config.errors import ConfigError
from feedrate.config.reading import convert_text
from feedrate.config.spec import RunSpec
from feedrate.core.errors import LogError, fail
from feedrate.core.paths import LOG_NAME, OUTCOME_NAME, SPEC_NAME, TRAINER_NAME
from feedrate.jobs.events import RankEvents, read_run_events
from feedrate.logs.text import fallback_reason, one_line, read_log
from feedrate.logs.trainer_files import (
    TrainerFigures,
    evaluation_figures,
    figures,
    read_evaluations,
    train_metrics,
)
from feedrate.logs.trainer_folder import read_trainer_folder
from feedrate.results.checks import Evidence, Observed, check_run
from feedrate.results.measurement import (
    ceilings,
    first_step,
    flops_per_sample,
    losses_of,
    measure,
    step_sum,
)
from feedrate.results.record import (
    Check,
    Measurement,
    PixelDistance,
    Provenance,
    Record,
    Status,
    write_record,
)
from feedrate.results.settings import DeviceFacts

# outcome.json: how the supervisor of a job saw it end.


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """The keys of docs/architecture.md; what is not named here is passed over."""

    schema: Literal[1] = 1
    status: Literal["ok", "out_of_memory", "failed"]
    infrastructure: bool = False
    cause: str | None = ""
    exit_code: int | None = None
    attempt: int | None = 1
    command: str | list[str] | None = ""
    commit: str | None = ""
    source_digest: str | None = ""
    data_digest: str | None = ""
    spec_digest: str | None = ""
    started_at: str | None = ""
    ended_at: str | None = ""
    duration_s: float | None = None
    machine_before: dict[str, Any] | None = {}
    host_peak_memory_gib: float | None = None


def read_outcome(path: Path) -> Outcome | None:
    """Read outcome.json; None where the supervisor did not live to write it. Raises LogError."""
    try:
        return msgspec.convert(json.loads(path.read_bytes()), Outcome)
    except FileNotFoundError:
        return None
    except (ValueError, RecursionError) as error:
        raise LogError(f"{path}: not an outcome: {error}") from None


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
        observed = _observed(ranks, outcome, log)
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


def _observed(ranks: dict[int, RankEvents], outcome: Outcome | None, log: str) -> Observed:
    first = ranks.get(0, RankEvents())
    windows = {rank: events.window for rank, events in ranks.items() if events.window}
    reference = windows[min(windows)] if windows else None
    same = all(
        reference and (w.first_step, w.last_step) == (reference.first_step, reference.last_step)
        for w in windows.values()
    )
    starts = [events.start for events in ranks.values() if events.start]
    return Observed(
        ranks=list(windows),
        world_sizes=[start.world_size for start in starts],
        device_models=[start.device_model for start in starts if start.device_model],
        decode=first.data.decode if first.data else None,
        attention=first.model.attention if first.model else None,
        fallback=fallback_reason(log),
        data_digests=[e.data.digest for e in ranks.values() if e.data and e.data.digest],
        data_digest_asked=(outcome.data_digest if outcome else "") or "",
        losses=losses_of(ranks),
        answers_finite=_answers(ranks),
        rank_samples=[window.samples for window in windows.values()],
        job_first_step=first_step(ranks),
        first_step=reference.first_step if reference and same else None,
        last_step=reference.last_step if reference and same else None,
        step_sum_s=step_sum(ranks),
        **_strategy(first),
        other_training_jobs=_other_jobs(outcome),
    )


def _answers(ranks: dict[int, RankEvents]) -> list[bool]:
    """Of each forward pass that told it, whether its answer was finite."""
    steps = (step for events in ranks.values() for step in events.steps)
    return [step.finite for step in steps if step.finite is not None]


def _strategy(first: RankEvents) -> dict[str, Any]:
    """What the first rank told of how the work was shared; nothing where it told nothing."""
    told = first.strategy
    if told is None:
        return {}
    return {
        "strategy": told.name,
        "layers": told.layers,
        "sharded_layers": told.sharded_layers,
        "offloaded_layers": told.offloaded_layers,
        "checkpointed_layers": told.checkpointed_layers,
        "ddp": told.ddp,
        "fp32": told.fp32,
    }


def _other_jobs(outcome: Outcome | None) -> int | None:
    """A count or a list of them, as the supervisor wrote it."""
    value = ((outcome.machine_before if outcome else None) or {}).get("other_training_jobs")
    if isinstance(value, list):
        return len(value)
    return value if isinstance(value, int) else None


def _trainer(first: RankEvents, run_dir: Path) -> TrainerFigures:
    """From the event where there is one, else from the files and the log that were left.

    Of optimum-habana's metrics only the files keep `total_flos`.
    """
    if first.trainer and first.trainer.metrics:
        metrics = train_metrics(run_dir / TRAINER_NAME) | first.trainer.metrics
        return figures(metrics, first.trainer.library)
    library = first.trainer.library if first.trainer else ""
    found = read_trainer_folder(run_dir / TRAINER_NAME, library)
    return found if found.runtime_s is not None else read_trainer_folder(run_dir, library)


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
    """Write the record of one run; 0 whatever became of the run, 1 where none can be made."""
    parser = argparse.ArgumentParser(
        prog="feedrate.results.assemble", description="Logs of a run to a record."
    )
    parser.add_argument("--run", type=Path, required=True, help="folder of the run")
    parser.add_argument("--device", required=True, help="its registry entry, a Python literal")
    parser.add_argument("--out", type=Path, required=True, help="the record.json to write")
    options = parser.parse_args(arguments)
    try:
        device = convert_text(options.device, DeviceFacts, "--device")
        write_record(options.out, build_record(options.run, device))
    except (ConfigError, LogError, OSError) as error:
        return fail(parser.prog, error)
    return 0


if __name__ == "__main__":
    sys.exit(main())
