"""Result files as typed rows, with what pages need of them; read without pandas."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import msgspec

from feedrate.config.errors import ConfigError
from feedrate.config.values import BETWEEN_LEVELS, Level, parse_levels
from feedrate.core import paths
from feedrate.core.errors import LogError
from feedrate.jobs.events import Step, read_events
from feedrate.results import columns
from feedrate.results.tables import read_rows


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """A row of a result file; columns that are not named here are left aside."""

    study: str


class CellOf(Row, frozen=True, kw_only=True):
    """A row that belongs to a cell."""

    device: str
    cell: str

    @property
    def levels(self) -> dict[str, Level]:
        """The cell's levels, from its name."""
        return parse_levels(self.cell, BETWEEN_LEVELS)


class CellRow(CellOf, frozen=True, kw_only=True):
    """A row of cells.csv: the repeats of one cell together."""

    status: str
    cause: str = ""
    task: str = "training"
    runs: int = 0
    ok_runs: int = 0
    samples_per_s: float | None = None
    ci_low: float | None = None
    ci_high: float | None = None
    spread: float | None = None
    noisy: bool = False
    step_time_median_s: float | None = None
    step_time_p95_s: float | None = None
    step_time_p99_s: float | None = None
    first_step_s: float | None = None
    data_wait_share: float | None = None
    peak_memory_gib: float | None = None
    allocator_retries: int | None = None
    energy_j_per_sample: float | None = None
    power_w: float | None = None
    usd_per_million_samples: float | None = None
    mfu: float | None = None
    tflops_per_device: float | None = None
    loss_end: float | None = None
    loss_shift: float | None = None
    loss_seeds: float | None = None
    loss_departs: bool = False
    trainer_samples_per_s: float | None = None
    loader_samples_per_s: float | None = None
    model_samples_per_s: float | None = None
    exchange_samples_per_s: float | None = None
    pixel_mean_abs_diff: float | None = None
    world_size: int | None = None
    batch_size: int | None = None
    cores_granted: int | None = None
    speedup: float | None = None
    speedup_ci_low: float | None = None
    speedup_ci_high: float | None = None
    verdict: str = ""
    why: str = ""
    recommended: bool = False
    recommendation: str = ""


class RunRow(CellOf, frozen=True, kw_only=True):
    """A row of results.csv: one run."""

    repeat: int | None = None
    status: str
    cause: str = ""
    samples_per_s: float | None = None
    step_time_median_s: float | None = None
    step_time_p95_s: float | None = None
    data_wait_share: float | None = None
    steps: int | None = None
    warmup_steps: int | None = None
    wall_s: float | None = None
    started_at: str = ""
    duration_s: float | None = None
    attempt: int | None = None
    commit: str = ""
    device_model: str = ""
    bf16_instructions: str = ""
    host: str = ""
    cores_granted: int | None = None
    library: str = ""
    dataset: str = ""
    data_digest: str = ""
    record: str = ""


class ClaimRow(Row, frozen=True, kw_only=True):
    """A row of claims.csv."""

    claim: str
    device: str = ""
    source: str = ""
    edition: str = ""
    statement: str
    expression: str = ""
    published_value: float | None = None
    recomputed_from_published: float | None = None
    published_verdict: str = ""
    measured: float | None = None
    ci_low: float | None = None
    ci_high: float | None = None
    verdict: str = ""
    why: str = ""


class FitRow(CellOf, frozen=True, kw_only=True):
    """A row of fit.csv: a cell, and what the loader model predicts for it."""

    origin: str
    series: str = ""
    """What tells the fits of a device apart; cells of one share the constants."""
    samples_per_s: float | None = None
    predicted: float | None = None
    residual: float | None = None
    tc_s: float | None = None
    td_s: float | None = None
    max_error: float | None = None
    bound: str = ""
    loader_workers: int | None = None
    tc_measured_s: float | None = None
    td_measured_s: float | None = None
    predicted_from_ceilings: float | None = None
    ceiling_residual: float | None = None
    reading: str = ""
    across_devices: str = ""

    @property
    def fit(self) -> tuple[str, str, str]:
        """What the cells of one fit have in common."""
        return self.origin, self.device, self.series

    def called(self, label: str) -> str:
        """The fit's name for people, of its device's `label`."""
        return f"{label} ({self.series})" if self.series else label


class QualityRow(CellOf, frozen=True, kw_only=True):
    """A row of quality.csv: one figure of a run's model, before or after training."""

    repeat: int
    status: str
    cause: str = ""
    moment: str = ""
    on: str = ""
    metric: str = ""
    head: str = ""
    value: float | None = None
    low: float | None = None
    high: float | None = None
    n: int = 0
    chance: float | None = None
    seconds: float | None = None
    note: str = ""
    job_s: float | None = None


AnyRow = TypeVar("AnyRow", bound=Row)

_COLUMNS = {
    "cells.csv": columns.CELLS,
    "results.csv": columns.RUNS,
    "claims.csv": columns.CLAIMS,
    "fit.csv": columns.FIT,
    "quality.csv": columns.QUALITY,
}


class Inputs:
    """The files that a page is made from, found by their names."""

    def __init__(self, files: Iterable[Path | str]) -> None:
        self._all = [Path(file) for file in files]
        self._files = {file.name: file for file in self._all}

    def path(self, name: str) -> Path:
        """The file with this name. Raises ConfigError where it was not given."""
        if name not in self._files:
            given = ", ".join(self._files) or "none"
            raise ConfigError(f"{name} is needed, but is not among the input files ({given})")
        return self._files[name]

    def page(self, path: str) -> Path:
        """The file whose path ends so (tables of two studies may bear one name).

        Raises ConfigError where it was not given.
        """
        wanted = Path(path).parts
        for file in self._all:
            if file.parts[-len(wanted) :] == wanted:
                return file
        raise ConfigError(f"{path} is needed, but is not among the input files")

    def with_suffix(self, suffix: str) -> list[Path]:
        """The files with this suffix."""
        return [file for file in self._all if file.suffix == suffix]

    def rows(
        self, name: str, kind: type[AnyRow], study: str, file: Path | None = None
    ) -> list[AnyRow]:
        """The rows of one study, of the file with this name or of `file`. Raises ConfigError for a
        file that does not fit."""
        path = file or self.path(name)
        try:
            return [
                msgspec.convert({k: v for k, v in row.items() if v is not None}, kind)
                for row in read_rows(path, _COLUMNS[name])
                if row.get("study") == study
            ]
        except (OSError, ValueError, msgspec.ValidationError) as error:
            raise ConfigError(f"{path}: {error}") from None

    def cells(self, study: str) -> list[CellRow]:
        """The cells of a study."""
        return self.rows("cells.csv", CellRow, study)

    def runs(self, study: str) -> list[RunRow]:
        """The runs of a study."""
        return self.rows("results.csv", RunRow, study)

    def scores(self, study: str) -> list[QualityRow]:
        """What the models of a study's runs score; of the files of several studies its own."""
        own = [file for file in self._all if file.parts[-2:] == (study, "quality.csv")]
        return self.rows("quality.csv", QualityRow, study, own[0] if own else None)

    def has(self, name: str) -> bool:
        """Whether a file with this name was given."""
        return name in self._files


# Per-step measurements of the runs, from their events.


@dataclass(frozen=True)
class Trace:
    """The steps of one run, as rank 0 saw them."""

    run: RunRow
    steps: list[Step]


def traces(inputs: Inputs, study: str) -> list[Trace]:
    """The runs that left steps, in the order of results.csv; a broken events file has none."""
    found = []
    for run in inputs.runs(study):
        events = Path(run.record).with_name(Path(paths.EVENTS).name) if run.record else None
        try:
            steps = read_events(events, 0).steps if events else []
        except (OSError, LogError):
            continue
        if steps:
            found.append(Trace(run, steps))
    return found
