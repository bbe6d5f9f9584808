"""Which try a job is: what failed is tried again by the next call, since its number has changed."""

import json
from collections.abc import Callable
from pathlib import Path

from feedrate import paths
from feedrate.config.settings import RunSpec
from feedrate.files import digest_file
from feedrate.train.ladder import NOT_TRIED, Made, still_pruned


class Attempts:
    """Numbers by the file that a job leaves, each taken once per plan, so that what a job leaves
    behind does not change the plan that it belongs to."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._data: dict[str, str] = {}

    def next(self, file: str, *, stands: Callable[[str], bool] | None = None) -> int:
        """1 at first; after a failure the next number, which is a changed param: tried again.

        So is a run beside which another training job was seen. Out of memory is a result and is
        not tried again, unless by its cause it no longer `stands`.
        """
        if file not in self._numbers:
            self._numbers[file] = _next_attempt(file, stands)
        return self._numbers[file]

    def of_run(self, spec: RunSpec, source: str) -> int:
        """The same for a run that the code of the digest `source` makes: one that was not tried is
        tried when no ladder leaves it out any more, or what it was left out for is no result now.
        """
        run = paths.run_dir(spec.study, spec.device, spec.cell, spec.repeat)

        def stands(cause: str) -> bool:
            if not cause.startswith(NOT_TRIED):
                return True
            return still_pruned(cause, spec, Made(source, self._digest_of(spec.dataset)), run)

        return self.next(str(run / paths.OUTCOME_NAME), stands=stands)

    def _digest_of(self, dataset: str) -> str:
        """Of the prepared data, as it is when the plan is made."""
        if dataset not in self._data:
            manifest = Path(paths.MANIFEST.format(dataset=dataset))
            self._data[dataset] = digest_file(manifest) if manifest.is_file() else ""
        return self._data[dataset]


def _next_attempt(file: str, stands: Callable[[str], bool] | None) -> int:
    try:
        with open(file, encoding="utf-8") as stream:  # noqa: PTH123 (10,000 of them at a plan)
            last = json.load(stream)
        status, cause = last["status"], str(last.get("cause", ""))
        disturbed = bool((last.get("machine_before") or {}).get("other_training_jobs"))
        fallen = status == "out_of_memory" and stands is not None and not stands(cause)
        return int(last["attempt"]) + (status == "failed" or disturbed or fallen)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return 1
