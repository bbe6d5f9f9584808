"""Ends of jobs that Snakemake's Slurm executor would not see, or see late.

It knows no end of a job that was preempted, that the controller has forgotten, or that sacct calls
`CANCELLED by <user>`, and so would look after it until somebody stops the workflow. And the longer
no job has ended well, the more seldom it looks: up to three minutes pass, with a node idle.
"""

from collections.abc import Awaitable, Callable
from typing import Any

Query = Callable[[str, Any], Awaitable[tuple[dict[str, str] | None, float | None]]]
"""The executor's question: a command and a logger to states by job and the seconds it took; None
for both where Slurm did not answer (snakemake-executor-plugin-slurm 2.8.0, query_job_status)."""

PREEMPTED = "PREEMPTED"
CANCELLED = "CANCELLED"
LONGEST_PAUSE_S = 30
"""From one look at all jobs to the next; the executor has no option for it."""

FORGOTTEN = "UNKNOWN"
"""The executor takes it for an end, and Snakemake then looks whether the results are there."""


def mend_executor(settings: Any) -> None:
    """Have the executor of this process see every end of a job, and soon. `settings`: its own."""
    import snakemake_executor_plugin_slurm as plugin

    if isinstance(plugin.query_job_status, States):
        return
    plugin.query_job_status = States(plugin.query_job_status, requeue=settings.requeue)
    pause = plugin.Executor.next_seconds_between_status_checks
    longest_s = max(LONGEST_PAUSE_S, settings.init_seconds_before_status_checks)
    plugin.Executor.next_seconds_between_status_checks = property(
        lambda executor: min(pause.fget(executor), longest_s), pause.fset
    )


class States:
    """`query_job_status` of the executor, with states that it understands. `requeue`: whether Slurm
    itself starts preempted jobs again."""

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
