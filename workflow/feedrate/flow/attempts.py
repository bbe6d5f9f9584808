"""Which runs have to be made again: the number of each run's attempt, and results that are not of
the current settings, data, weights and code."""

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from feedrate.config.settings import Settings
from feedrate.config.spec import RunSpec
from feedrate.core import paths
from feedrate.core.files import digest_file, digest_value
from feedrate.jobs.earlier import inputs_digest, pruned_by
from feedrate.jobs.events import NOT_TRIED
from feedrate.results.files import read_noted

RECORDED = Path(".snakemake/metadata")
"""What Snakemake recorded about the files that it made."""


def of_run(path: str, spec: RunSpec) -> str:
    """A run's file, for one of the patterns of `core.paths`."""
    return path.format(study=spec.study, device=spec.device, cell=spec.cell, repeat=spec.repeat)


class Attempts:
    """The number of each run's attempt, a param: with a new number a run runs again. Each is read
    once per plan: a job that ends does not change its plan."""

    def __init__(self, digest: Callable[[Path], str] = digest_file) -> None:
        """`digest` computes that of a file; weights are large."""
        self._digest_file = digest
        self._numbers: dict[str, int] = {}
        self._data: dict[str, str] = {}
        self._disturbed: dict[str, dict[str, int]] = {}

    def next(self, file: str, *, holds: Callable[[str], bool] | None = None) -> int:
        """The attempt that makes `file`, a JSON file with a `status`: 1 at first. It goes up after
        a failure, and after a lack of memory whose cause no longer `holds`."""
        if file in self._numbers:
            return self._numbers[file]
        try:
            with open(file, encoding="utf-8") as stream:  # noqa: PTH123 (10,000 of them per plan)
                last = json.load(stream)
            status, cause = last["status"], str(last.get("cause", ""))
            fallen = status == "out_of_memory" and holds is not None and not holds(cause)
            number = int(last["attempt"]) + (status == "failed" or fallen)
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            number = 1
        self._numbers[file] = number
        return number

    def of_run(self, spec: RunSpec, source: str) -> int:
        """The attempt of a run with code of the digest `source`. A run that a ladder left out is
        tried when the ladder or the smaller cell's result no longer excludes it. A run that other
        work on the machine disturbed is tried again, as its record says."""

        def holds(cause: str) -> bool:
            if not cause.startswith(NOT_TRIED):
                return True
            run = paths.run_dir(spec.study, spec.device, spec.cell, spec.repeat)
            made, inputs = (source, self._digest_of(spec.dataset)), self._inputs_of(spec.dataset)
            return pruned_by(spec, made, inputs, run, cause=cause) is not None

        number = self.next(of_run(paths.OUTCOME, spec), holds=holds)
        return number + (self._disturbed_attempt(spec) == number)

    def has_ended(self, spec: RunSpec, source: str) -> bool:
        """Whether the run has a result of its current settings, the current data and weights (if
        they are here) and code with the digest `source`, and nothing disturbed it."""
        outcome = self._outcome(spec)
        tried = not str(outcome.get("cause")).startswith(NOT_TRIED)
        ended = tried and outcome.get("status") in ("ok", "out_of_memory")
        undisturbed = outcome.get("attempt") != self._disturbed_attempt(spec)
        return ended and undisturbed and self._is_current(spec, source, outcome)

    def is_stale(self, spec: RunSpec, source: str) -> bool:
        """Whether the run has a result, but not of its current settings, data, weights and code, or
        of an attempt that must be followed by another."""
        outcome = self._outcome(spec)
        last = outcome.get("attempt") in (None, self.of_run(spec, source))
        return bool(outcome) and not (last and self._is_current(spec, source, outcome))

    def stale(self, specs: Sequence[RunSpec], source_of: Callable[[RunSpec], str]) -> set[str]:
        """Of all runs of a study on a device, the outcomes and the list of records that have to be
        made again, whether or not Snakemake sees why: it compares only what it recorded when it
        made a file itself, in this folder."""
        found = {of_run(paths.OUTCOME, o) for o in specs if self.is_stale(o, source_of(o))}
        for file in {of_run(paths.RECORDS, spec) for spec in specs}:
            runs = {of_run(paths.RUN, spec) for spec in specs}
            parsed = read_noted(Path(file), "digests").keys() == runs
            if not (parsed and any(RECORDED.glob("*"))):
                found.add(file)
        return found

    def _outcome(self, spec: RunSpec) -> dict[str, Any]:
        """The outcome of a run; empty without one that can be read."""
        try:
            return dict(json.loads(Path(of_run(paths.OUTCOME, spec)).read_bytes()))
        except (OSError, ValueError, TypeError):
            return {}

    def _is_current(self, spec: RunSpec, source: str, outcome: Mapping[str, Any]) -> bool:
        made = [outcome.get(key) for key in ("spec_digest", "source_digest", "data_digest")]
        data, read = self._digest_of(spec.dataset) or made[-1], outcome.get("inputs_digest", "")
        inputs = read and self._inputs_of(spec.dataset)(spec.settings)
        same = made == [digest_value(msgspec.to_builtins(spec)), source, data]
        return same and inputs in ("", read)

    def _disturbed_attempt(self, spec: RunSpec) -> int | None:
        """The attempt of a run that its record calls disturbed by other work on the machine."""
        records = of_run(paths.RECORDS, spec)
        if records not in self._disturbed:
            self._disturbed[records] = read_noted(Path(records), "disturbed")
        return self._disturbed[records].get(of_run(paths.RUN, spec))

    def _inputs_of(self, dataset: str) -> Callable[[Settings], str]:
        """A function that computes the digest of a run's other inputs, when the plan is made."""
        prepared = Path(paths.MANIFEST.format(dataset=dataset)).parent
        return partial(inputs_digest, prepared=prepared, digest=self._digest_file)

    def _digest_of(self, dataset: str) -> str:
        """The digest of the prepared data when the plan is made."""
        if dataset not in self._data:
            manifest = Path(paths.MANIFEST.format(dataset=dataset))
            self._data[dataset] = digest_file(manifest) if manifest.is_file() else ""
        return self._data[dataset]
