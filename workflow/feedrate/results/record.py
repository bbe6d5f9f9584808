"""The documents of a run: the supervisor's outcome, and the record made from all logs."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from feedrate.config.spec import RunSpec
from feedrate.config.values import Level, Strict, about
from feedrate.core import paths
from feedrate.core.errors import ExpectedError
from feedrate.core.files import write_text
from feedrate.results.schema import Ceilings, Measurement, PixelDistance, Provenance, Stages, Status
from feedrate.results.trainer_logs import TrainerFigures

RECORDS_NAME, DISTURBED_NAME = (Path(path).name for path in (paths.RECORDS, paths.DISTURBED))
"""The files of a study's device in the folder of its results."""


class Outcome(Provenance, forbid_unknown_fields=False, kw_only=True):
    """outcome.json, as docs/run-files.md describes it; other keys are ignored."""

    status: Literal["ok", "out_of_memory", "failed"]
    cause: str = ""
    host_peak_memory_gib: float | None = None
    identity: str = ""
    files: dict[str, str] = {}
    """SHA-256 of the files in the folder by their paths; of others, none is known."""


class RecordError(ExpectedError):
    """A file without records of this version; the message names it."""


class Check(Strict, kw_only=True):
    """A condition that the numbers must meet before they count."""

    name: str
    passed: bool
    detail: str


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
    """A line of results/<study>/<device>/records.jsonl: all that is known of a planned run."""

    study: str
    device: str
    cell: str
    levels: dict[str, Level]
    repeat: int
    folder: Annotated[str, about("Its folder, from the project's root.")] = ""
    status: Status
    cause: Annotated[str, about("Why it is not ok; of an ok run, a note.")] = ""
    spec: RunSpec | None = None
    model_parameters: int | None = None
    flops_per_sample: Annotated[
        float | None, about("Forward + backward (inference: forward), 2 per MAC, no recomputation.")
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


def write_records(results: Path, device: str, records: Sequence[Record]) -> None:
    """Write the records of a device into its study's results; NaN becomes null."""
    lines = (msgspec.json.encode(record).decode() + "\n" for record in records)
    write_text(results / device / RECORDS_NAME, "".join(lines))


def read_records(results: Path, device: str) -> list[Record]:
    """The records of a device in the folder of its study's results. Raises RecordError."""
    file = results / device / RECORDS_NAME
    try:
        return msgspec.json.Decoder(Record).decode_lines(file.read_bytes())
    except FileNotFoundError:
        raise RecordError(f"{file}: no such file") from None
    except (ValueError, RecursionError) as error:
        raise RecordError(f"{file}: remove this file, which has no records: {error}") from None
