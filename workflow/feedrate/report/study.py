"""A study as the report reads it: its plan, the rows of its result files, and the names of both."""

import contextlib
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Literal, NamedTuple, TypeVar

import msgspec

from feedrate.config.errors import ConfigError
from feedrate.config.plan import AdaptedStudy
from feedrate.config.study import Published
from feedrate.config.values import BETWEEN_LEVELS, Level, level_text, parse_levels
from feedrate.config.workflow import Generated
from feedrate.core import paths
from feedrate.core.errors import LogError
from feedrate.jobs.events import Step, read_events
from feedrate.report import text
from feedrate.report.rows import (
    AnswerRow,
    AnyRow,
    CellOf,
    CellRow,
    ClaimRow,
    Key,
    Line,
    RunRow,
    level_key,
    varying_factors,
    without,
)
from feedrate.results import files
from feedrate.results.answers import LIVE_MODEL
from feedrate.results.comparability import WORKERS, computes_the_same
from feedrate.results.expression import LARGEST
from feedrate.results.files import read_csv
from feedrate.results.record import Record, RecordError, read_records
from feedrate.results.study_plan import StudyPlan, read_plan

Part = Literal["answer", "why", "source", "method", "runs"]
"""Where a page shows a table or a figure: on the first screen, or in one of the folded parts."""
MOST = 8
"""Settings of a device on the first screen."""
T = TypeVar("T")


class Trace(NamedTuple):
    """The steps of one run, as rank 0 measured them."""

    run: RunRow
    steps: list[Step]


class StudyResults:
    """One study: what was planned, what came out, and how both are named for readers."""

    def __init__(self, plan: StudyPlan, results: Path) -> None:
        """`results` is the folder of all results."""
        self.plan, self.study, self.name = plan, plan.study, plan.name
        self.folder = results / plan.name

    @classmethod
    def read(cls, plan: Path, results: Path) -> "StudyResults":
        """The study of a plan's file; `results` is the folder of its results."""
        return cls(read_plan(plan), results.parent)

    # Rows. All raise ConfigError for a file that is missing or wrong.

    @cached_property
    def cells(self) -> list[CellRow]:
        """All cells, in the order of the configuration."""
        return self._rows("cells.csv", CellRow)

    @cached_property
    def tried(self) -> list[CellRow]:
        """The cells that have runs of their own."""
        return [c for c in self.cells if c.status != "unsupported" and not c.measured_as]

    @cached_property
    def runs(self) -> list[RunRow]:
        """All runs."""
        return self._rows("results.csv", RunRow)

    @cached_property
    def answers(self) -> list[AnswerRow]:
        """The cells to use: one for each device and level of the factors in `within`."""
        return self._rows("answers.csv", AnswerRow)

    @cached_property
    def claims(self) -> list[ClaimRow]:
        """All claims."""
        return self._rows("claims.csv", ClaimRow)

    @cached_property
    def records(self) -> dict[str, Record]:
        """The records by the folders of their runs; files that cannot be read are left out."""
        records: dict[str, Record] = {}
        for device in dict.fromkeys(run.device for run in self.runs):
            with contextlib.suppress(OSError, RecordError):
                records |= {r.folder: r for r in read_records(self.folder, device)}
        return records

    @cached_property
    def traces(self) -> list[Trace]:
        """The ok runs with their steps; events files that cannot be read are left out."""
        traces = []
        for run in self.runs:
            if run.status == "ok" and run.folder and not run.measured_as:
                with contextlib.suppress(OSError, LogError):
                    if steps := read_events(Path(run.folder) / paths.EVENTS_NAME, 0).steps:
                        traces.append(Trace(run, steps))
        return traces

    def data_report(self, kind: type[T]) -> T | None:
        """The report about the study's data; None where there is none yet."""
        try:
            return msgspec.json.decode(Path(self.plan.data_report).read_bytes(), type=kind)
        except OSError:
            return None
        except (ValueError, RecursionError) as error:
            raise ConfigError(f"{self.plan.data_report}: {error}") from None

    def _rows(self, name: str, kind: type[AnyRow]) -> list[AnyRow]:
        path = self.folder / name
        try:
            return [
                msgspec.convert({k: v for k, v in row.items() if v is not None}, kind)
                for row in read_csv(path, files.FILES[name])
            ]
        except (OSError, ValueError) as error:
            raise ConfigError(f"{path}: {error}") from None

    def runs_of(self, cell: CellOf) -> list[RunRow]:
        """The runs of a cell."""
        return self._runs_by_cell.get(cell.key, [])

    @cached_property
    def _runs_by_cell(self) -> dict[Key, list[RunRow]]:
        return text.grouped(self.runs, lambda run: run.key)

    def cell(self, device: str, levels: Mapping[str, Level]) -> CellRow | None:
        """The cell of a device with these levels."""
        return self._cell_by_key.get((device, level_key(levels)))

    def cell_named(self, device: str, name: str) -> CellRow | None:
        """The cell of a device with this name."""
        return self.cell(device, parse_levels(name, BETWEEN_LEVELS)) if name else None

    def baseline_cell(self, cell: CellOf) -> CellRow | None:
        """The cell that a cell is compared with."""
        return self.cell(cell.device, self.study.baseline_of(cell.levels))

    @cached_property
    def _cell_by_key(self) -> dict[Key, CellRow]:
        return {(cell.device, level_key(cell.levels)): cell for cell in self.cells}

    def answer(self, device: str) -> AnswerRow | None:
        """The answer of a device: of the factors in `within`, at the last level of a ladder's that
        has one, and at the baseline's of others, if that has one."""
        mine = [answer for answer in self.answers if answer.device == device]

        def place(answer: AnswerRow) -> list[int]:
            places = []
            for name in self.study.within:
                level, order = answer.levels[name], self.study.factors[name].texts
                place = order.index(level_text(level))
                is_baseline = level == self.study.baseline[name]
                places.append(place if name in self.study.ladder else int(is_baseline))
            return places

        return max(mine, key=place, default=None)

    def changes(self, cell: CellOf) -> int:
        """The number of levels in which a cell differs from its baseline."""
        baseline = self.study.baseline_of(cell.levels)
        return sum(level != baseline[name] for name, level in cell.levels.items())

    # What the study asks

    @property
    def devices(self) -> list[str]:
        """The devices on which it is measured."""
        return self.plan.measured

    @property
    def asks(self) -> str:
        """speed, largest, latency or learning."""
        return self.study.asks or ("latency" if self.study.task == "inference" else "speed")

    @property
    def along(self) -> str:
        """The factor whose levels the first screen compares: the last one of the ladder where the
        study asks for the largest level or for latencies, else the first with a common baseline."""
        if self.asks in ("largest", "latency") and self.study.ladder:
            return self.study.ladder[-1]
        names = [name for name in self.study.factors if name not in self.study.within]
        return next(iter(names or self.study.factors))

    def lines(self, factor: str) -> list[Line]:
        """The tried cells along a factor: a line for each device and levels of the others."""
        order = self.study.factors[factor].texts
        lines = []
        for device in self.devices:
            mine = [cell for cell in self.tried if cell.device == device]
            groups = text.grouped(mine, lambda c: level_key(without(c.levels, factor)))
            for cells in groups.values():
                cells.sort(key=lambda cell: order.index(level_text(cell.levels[factor])))
                lines.append(Line(device, without(cells[0].levels, factor), cells))
        return lines

    def lines_of_answer(self, device: str, answer: AnswerRow | None = None) -> list[Line]:
        """The lines of a device along `along`, at the levels that its answer, or another one, has
        of factors in `within`."""
        answer = answer or self.answer(device)
        fixed = {name: answer.levels[name] for name in self.study.within} if answer else {}
        return [
            line
            for line in self.lines(self.along)
            if line.device == device
            and all(line.others.get(name, level) == level for name, level in fixed.items())
        ]

    def on_first_screen(self, device: str) -> list[CellRow]:
        """The cells of a device on the first screen: those along `along` at the other levels of the
        answer; and those that the answer names, which are the cell to use, its baseline and the
        nearest. Of more than `MOST`, the fastest and these three."""
        answer = self.answer(device)
        levels = answer.levels if answer else self.study.baseline
        always = [self.cell(device, self.study.baseline_of(levels)), self.cell(device, levels)]
        if answer and answer.other_gain_at_most >= self.study.thresholds.smallest_effect:
            always.append(self.cell_named(device, answer.nearest))
        others = without(levels, self.along)
        mine = [
            cell
            for cell in self.tried
            if cell.device == device
            and (cell in always or level_key(without(cell.levels, self.along)) == level_key(others))
        ]
        fastest = sorted(mine, key=lambda c: (c not in always, -(c.samples_per_s or 0)))[:MOST]
        return [cell for cell in mine if cell in fastest]

    def by_share(self, device: str) -> bool:
        """Whether the settings of a device on the first screen are compared by the share of the
        model alone that they reach: their answer is by this measure, and they compute the same."""
        answer = self.answer(device)
        if answer is None or answer.measure != LIVE_MODEL:
            return False
        return all(
            cell.share and computes_the_same(self.study.factors, cell.levels, answer.levels)
            for cell in self.on_first_screen(device)
            if cell.samples_per_s is not None
        )

    def is_choice(self, cell: CellRow) -> bool:
        """Whether a cell is the one to use among several."""
        return cell.use and any(
            answer.compared > 1 for answer in self.answers if answer.key == cell.key
        )

    @cached_property
    def published(self) -> dict[Key, Published]:
        """The published throughputs that comparisons use, by device and `level_key`."""
        return {
            (row.device, level_key({**self.study.baseline, **row.levels})): row
            for row in self.plan.published
            if row.headline and row.metric == "samples_per_s"
        }

    # Names

    def label(self, device: str) -> str:
        """The device's display name."""
        devices = self.plan.project.devices
        return devices[device].label if device in devices else device

    def factor_label(self, factor: str) -> str:
        """The factor's display name."""
        return self.study.factors[factor].label or factor

    def memory_limit_gib(self, device: str) -> float | None:
        """The study's memory limit for a process, GiB; None where it sets none."""
        return AdaptedStudy(self.plan.project, self.name, device).settings.train.memory_gib

    def is_drawn(self, dataset: str) -> bool:
        """Whether a dataset is of drawn pictures; its name may end with its number of rows."""
        entries = self.plan.project.config.datasets
        names = dataset, dataset.rpartition("-")[0]
        return any(isinstance(entries.get(name), Generated) for name in names)

    @cached_property
    def workers_factor(self) -> str | None:
        """The factor that sets the loader's workers."""
        factors = self.study.factors.items()
        return next((name for name, factor in factors if factor.sets == WORKERS), None)

    @cached_property
    def varied(self) -> set[str]:
        """The factors in which the tried cells differ."""
        return {self.along, *varying_factors(self.tried)}

    @property
    def others_varied(self) -> list[str]:
        """The factors besides `along` in which the tried cells differ; without any, all others."""
        others = [name for name in self.study.factors if name != self.along]
        return [name for name in others if name in self.varied] or others

    def setting(self, levels: Mapping[str, Level]) -> str:
        """A cell in a sentence, by what a reader must set: `2 loader workers, decode device`. These
        are the levels along the first screen, and those that differ from the baseline's, without
        those of all tried cells."""
        always = {self.along, *self.study.ladder}
        return self.words(
            {
                name: level
                for name, level in levels.items()
                if name in self.varied and (name in always or level != self.study.baseline[name])
            }
        )

    def setting_of_baseline(self, cell: CellOf) -> str:
        """A cell's baseline in a sentence, by the levels in which it differs from the cell."""
        baseline = self.study.baseline_of(cell.levels)
        return self.words({n: at for n, at in baseline.items() if at != cell.levels[n]})

    def setting_among(self, cell: CellOf, cells: Sequence[CellOf]) -> str:
        """A cell in a sentence about several, by the levels in which they differ."""
        factors = varying_factors(cells)
        return self.words({n: cell.levels[n] for n in factors}) or self.setting(cell.levels)

    def name_among(self, cell: CellOf, cells: Sequence[CellOf]) -> str:
        """A cell as a heading, by its device and levels as far as others differ in these."""
        device = [self.label(cell.device)] if len({other.device for other in cells}) > 1 else []
        factors = varying_factors(cells) or [self.along]
        return ", ".join([*device, *(level_text(cell.levels[name]) for name in factors)])

    def words(self, levels: Mapping[str, Level]) -> str:
        """Levels in a sentence."""
        return ", ".join(
            workers_text(level)
            if name == self.workers_factor and level != LARGEST
            else f"{name} {level_text(level)}"
            for name, level in levels.items()
        )


def workers_text(count: Level) -> str:
    """`no loader worker`, `1 loader worker`, `2 loader workers`."""
    return text.counted(int(count), "loader worker") if int(count) else "no loader worker"
