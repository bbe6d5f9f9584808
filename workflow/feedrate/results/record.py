"""The documents of a run: the supervisor's outcome, and the record made from all logs."""

import json
import math
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import msgspec

from feedrate.config.spec import RunSpec
from feedrate.config.values import Level, Strict, about
from feedrate.core.errors import ExpectedError, LogError
from feedrate.core.files import write_json
from feedrate.results.schema import Ceilings, Measurement, PixelDistance, Provenance, Stages, Status
from feedrate.results.trainer_logs import TrainerFigures

T = TypeVar("T")
RECORD_SCHEMA = 1
"""Version of `Record`: raise it when a field changes its meaning."""


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """outcome.json, as docs/run-files.md describes it; other keys are ignored."""

    schema: Literal[1] = 1
    status: Literal["ok", "out_of_memory", "failed"]
    cause: str | None = ""
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


class RecordError(ExpectedError):
    """A file that is no record.json of this version; the message names it."""


class Check(Strict, kw_only=True):
    """A condition that the numbers must meet before they count."""

    name: str
    passed: bool
    detail: str


class MadeFrom(Strict, kw_only=True):
    """The sources of a record; if they have changed, the record is made again."""

    parser: Annotated[str, about("Digest of the code that read the logs.")] = ""
    device: Annotated[str, about("Digest of the registry's facts on the device.")] = ""
    files: Annotated[dict[str, str], about("SHA-256 of each log by its path.")] = {}


class Score(Strict, kw_only=True):
    """A score of the model, a share from 0 to 1, before and after training."""

    on: Annotated[str, about("validation, test, or winoground.")]
    metric: Annotated[str, about("matching_accuracy, text_score, …")]
    before: Annotated[float | None, about("Null: not evaluated then.")] = None
    after: float | None = None
    gain_low: Annotated[float | None, about("Of after minus before, paired, 95%.")] = None
    gain_high: float | None = None
    n: Annotated[int, about("Number of answers.")] = 0
    chance: Annotated[float | None, about("By guessing.")] = None


class Record(Strict, kw_only=True):
    """results/<study>/<device>/<cell>/rep<k>/record.json."""

    schema_version: int = RECORD_SCHEMA
    study: str
    device: str
    cell: str
    levels: dict[str, Level]
    repeat: int
    status: Status
    cause: Annotated[str, about("Why it is not ok; of an ok run, a note.")] = ""
    spec: RunSpec | None = None
    model_parameters: int | None = None
    flops_per_sample: Annotated[
        float | None,
        about("Forward + backward (inference: forward), 2 per MAC, no recomputation."),
    ] = None
    measurement: Measurement | None = None
    ceilings: Ceilings = Ceilings()
    stages: Stages = Stages()
    pixels: PixelDistance = PixelDistance()
    trainer: TrainerFigures = TrainerFigures()
    evaluation: Annotated[dict[str, float], about("The Trainer's eval_* and predict_*.")] = {}
    scores: list[Score] = []
    winoground: Annotated[
        str, about("Its copy: generated, folder (NAME) or hub (facebook/winoground at 4d3…).")
    ] = ""
    checks: list[Check] = []
    disturbances: Annotated[
        list[str], about("What may have disturbed the run; it makes its cell noisy.")
    ] = []
    provenance: Provenance = Provenance()
    made_from: MadeFrom = MadeFrom()


def read_outcome(path: Path) -> Outcome | None:
    """Read outcome.json; None if the supervisor was killed before it wrote one. Raises LogError."""
    try:
        return msgspec.convert(json.loads(path.read_bytes()), Outcome)
    except FileNotFoundError:
        return None
    except (ValueError, RecursionError) as error:
        raise LogError(f"{path}: not an outcome: {error}") from None


def write_record(path: Path, record: Record) -> None:
    """Write a record atomically, the same bytes for the same record; NaN in the machine's state,
    which JSON lacks, becomes null."""
    write_json(path, _finite(msgspec.to_builtins(record)))


def read_record(path: Path) -> Record:
    """Read a record. Raises RecordError if it is not one of this version."""
    found = read_document(path, Record)
    if (given := found.schema_version) != RECORD_SCHEMA:
        raise RecordError(
            f"{path}: schema_version {given} is not allowed; this version of feedrate reads "
            f"{RECORD_SCHEMA} (remove the file, and the next run of the workflow makes it again)"
        )
    return found


def read_document(path: Path, kind: type[T]) -> T:
    """Read a JSON document. Raises RecordError if it is missing or damaged."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except FileNotFoundError:
        raise RecordError(f"{path}: no such file") from None
    except (ValueError, RecursionError) as error:
        raise RecordError(f"{path}: not of this version: {error}") from None


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
