"""Which try a job is: what failed is tried again by the next call, since its number has changed."""

import json


class Attempts:
    """Numbers by the file that a job leaves, each taken once per plan, so that what a job leaves
    behind does not change the plan that it belongs to."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def next(self, file: str) -> int:
        """1 at first; after a failure the next number, which is a changed param: tried again.

        So is a run beside which another training job was seen. Out of memory is a result and is
        not tried again.
        """
        if file not in self._numbers:
            self._numbers[file] = _next_attempt(file)
        return self._numbers[file]


def _next_attempt(file: str) -> int:
    try:
        with open(file, encoding="utf-8") as stream:  # noqa: PTH123 (10,000 of them at a plan)
            last = json.load(stream)
        disturbed = bool((last.get("machine_before") or {}).get("other_training_jobs"))
        return int(last["attempt"]) + (last["status"] == "failed" or disturbed)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return 1
