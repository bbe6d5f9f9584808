"""Jobs' states as Snakemake's Slurm executor reads them, where it would wait for ever.

It knows no end of a job that was preempted, that the controller has forgotten, or that sacct calls
`CANCELLED by <user>`, and so would look after it until somebody stops the workflow.
"""

from collections.abc import Awaitable, Callable
from typing import Any

Query = Callable[[str, Any], Awaitable[tuple[dict[str, str] | None, float | None]]]
"""The executor's question: a command and a logger to states by job and the seconds it took; None
for both where Slurm did not answer (snakemake-executor-plugin-slurm 2.8.0, query_job_status)."""

PREEMPTED = "PREEMPTED"
CANCELLED = "CANCELLED"
FORGOTTEN = "UNKNOWN"
"""The executor takes it for an end, and Snakemake then looks whether the results are there."""


def mend_executor(*, requeue: bool) -> None:
    """Have the executor of this process see every end of a job. `requeue`: whether Slurm itself
    starts preempted jobs again."""
    import snakemake_executor_plugin_slurm as plugin

    if not isinstance(plugin.query_job_status, States):
        plugin.query_job_status = States(plugin.query_job_status, requeue=requeue)


class States:
    """`query_job_status` of the executor, with states that it understands."""

    def __init__(self, query: Query, *, requeue: bool) -> None:
        self._query, self._requeue = query, requeue
        self._seen = set[str]()

    async def __call__(
        self, command: str, logger: Any
    ) -> tuple[dict[str, str] | None, float | None]:
        """Ask, and put the answer in the executor's words."""
        states, took_s = await self._query(command, logger)
        if states is None:
            return None, took_s
        known = {job: self._word(state) for job, state in states.items()}
        self._seen |= known.keys()
        return dict.fromkeys(self._seen, FORGOTTEN) | known, took_s

    def _word(self, state: str) -> str:
        word = state.split()[0] if state else state  # "CANCELLED by 1000"
        return CANCELLED if word == PREEMPTED and not self._requeue else word
