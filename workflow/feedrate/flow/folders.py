"""Which folder is a run's: the one that has its result, or the one that this call makes."""

import json
import os
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from feedrate.config.spec import RunSpec
from feedrate.core import paths

Outcome = dict[str, Any]


class RunFolders:
    """The folders of planned runs. What is on disk is read once per plan: a job that ends does not
    change its plan."""

    def __init__(
        self, identity: Callable[[RunSpec], str], smaller: Callable[[RunSpec], list[RunSpec]]
    ) -> None:
        """`identity` gives that of a run; `smaller` the runs that need no more memory, by the
        study's ladder."""
        self._identity, self._smaller = identity, smaller
        self._attempts: dict[str, dict[tuple[int, str], list[int]]] = {}
        self._newest: dict[tuple[str, str, str, int], tuple[int, Outcome]] = {}
        self._disturbed: dict[str, set[str]] = {}

    def target(self, spec: RunSpec) -> str:
        """The folder that has the run's result, or in which this call makes it. A failed, disturbed
        or outdated attempt stays, and the next one has a folder of its own."""
        number, outcome = self._last(spec)
        if number and not self._serves(spec, number, outcome):
            number += 1
        return self._folder(spec, number or 1)

    def result(self, spec: RunSpec) -> str:
        """The folder of the newest attempt that has ended; the target if there is none."""
        number, _ = self._last(spec)
        return self._folder(spec, number or 1)

    def has_result(self, spec: RunSpec) -> bool:
        """Whether the run needs no further attempt."""
        number, outcome = self._last(spec)
        return bool(number) and self._serves(spec, number, outcome)

    def _serves(self, spec: RunSpec, number: int, outcome: Outcome) -> bool:
        """Whether an attempt needs no further one."""
        if outcome.get("status") not in ("ok", "out_of_memory"):
            return False
        too_large = outcome.get("smaller")  # not tried, because the run in this folder did not fit
        if too_large:
            for run in self._smaller(spec):
                last, result = self._last(run)
                ran_out = result.get("status") == "out_of_memory" and not result.get("smaller")
                if ran_out and self._folder(run, last) == too_large:
                    return True
            return False
        file = paths.DISTURBED.format(study=spec.study, device=spec.device)
        if file not in self._disturbed:
            self._disturbed[file] = set(_read_json(file, []))
        return self._folder(spec, number) not in self._disturbed[file]

    def _last(self, spec: RunSpec) -> tuple[int, Outcome]:
        """Number and outcome of the newest attempt that has ended; 0 if there is none."""
        key = spec.study, spec.device, spec.cell, spec.repeat
        if key not in self._newest:
            self._newest[key] = 0, {}
            attempts = self._attempts_of(f"{paths.RUNS}/{spec.study}/{spec.device}/{spec.cell}")
            numbers = attempts.get((spec.repeat, self._identity(spec)), ())
            for number in sorted(numbers, reverse=True):
                outcome = _read_json(f"{self._folder(spec, number)}/{paths.OUTCOME_NAME}", {})
                if outcome:
                    self._newest[key] = number, outcome
                    break
        return self._newest[key]

    def _attempts_of(self, cell: str) -> dict[tuple[int, str], list[int]]:
        """The attempts in the folder of a cell, by repeat and identity of their runs."""
        if cell not in self._attempts:
            attempts = self._attempts[cell] = {}
            names: list[str] = []
            with suppress(OSError):
                names = os.listdir(cell)  # noqa: PTH208 (10,000 of them per plan)
            for name in names:
                match = paths.RUN_FOLDER.fullmatch(name)
                if match:
                    run = int(match["repeat"]), match["identity"]
                    attempts.setdefault(run, []).append(int(match["attempt"] or 1))
        return self._attempts[cell]

    def _folder(self, spec: RunSpec, number: int) -> str:
        suffix = f"-{number}" if number > 1 else ""
        return run_folder(spec, self._identity(spec) + suffix)


def run_folder(spec: RunSpec, identity: str) -> str:
    """The folder of a run, relative to the project's root."""
    return f"{paths.RUNS}/{spec.study}/{spec.device}/{spec.cell}/rep{spec.repeat}-{identity}"


def _read_json(file: str, otherwise: Any) -> Any:
    """The content of a JSON file; `otherwise` if it is missing, damaged or of another type."""
    try:
        with open(file, "rb") as stream:  # noqa: PTH123 (10,000 of them per plan)
            value = json.loads(stream.read())
    except (OSError, ValueError):
        return otherwise
    return value if isinstance(value, type(otherwise)) else otherwise
