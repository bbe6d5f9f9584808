"""Before the first job: would Slurm take what the rules ask for, and would their end be seen?

Some requests Slurm refuses only when the job is sent, which may be hours after the start; others it
accepts, and never starts. Here each is put to it beforehand, in the executor's own words.
"""

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Awaitable, Callable
from typing import Any

from feedrate.config.workflow import WorkflowConfig
from feedrate.core.slurm import minutes
from feedrate.flow.configuration import profile_names

# Ends of jobs that Snakemake's Slurm executor would not see, or see late.
# It knows no end of a job that was preempted, that the controller has forgotten, or that sacct
# calls `CANCELLED by <user>`, and so would look after it until somebody stops the workflow. And
# the longer no job has ended well, the more seldom it looks: up to three minutes pass, with a
# node idle.

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


ANSWER_S = 60.0
"""A controller that has not answered by then is asked nothing more: the jobs will tell."""

LATER = "--begin=now+1hour"
"""A job with it is judged as any other, and can be cancelled before it begins."""

_OPENING = re.compile(r"^sbatch: (error: )?")


def check(workflow: Any) -> None:
    """Ask Slurm about every kind of job that is to be sent to it; nothing is run.

    Called when the plan is made. Raises WorkflowError with all that it would not run. Other
    executors, and a Slurm that does not answer, pass.
    """
    from snakemake.exceptions import WorkflowError
    from snakemake_executor_plugin_slurm import ExecutorSettings

    settings = workflow.executor_settings
    if not isinstance(settings, ExecutorSettings):
        return
    if shutil.which("sbatch") is None:
        here = ", ".join(profile_names("local"))
        raise WorkflowError(
            "no sbatch here: this profile sends its jobs to Slurm; run it on a login node of the "
            f"cluster, or use a profile for one machine (--profile {here})"
        )
    mend_executor(settings)
    tries = 1 + int(workflow.execution_settings.retries)
    jobs = {_sbatch(job, settings): job for job in workflow.dag.needrun_jobs() if not job.is_local}
    found = [
        f"  {job.rule.name}: {problem}"
        for command, job in jobs.items()
        if (problem := _too_long(job, tries) or _refusal(command))
    ]
    if found:
        raise WorkflowError(
            "Slurm would not run what the profile asks for. Nothing was started; change it under "
            "`set-resources` in the profile's config.yaml:\n" + "\n".join(sorted(found))
        )


def check_token(config: WorkflowConfig) -> None:
    """Raise WorkflowError where models are to be pushed and there is no token to do it with."""
    from snakemake.exceptions import WorkflowError

    if config.push_to_hub and not os.environ.get("HF_TOKEN", "").strip():
        raise WorkflowError(
            "config/config.yaml: push_to_hub needs a token in the environment variable HF_TOKEN; "
            "nothing was started"
        )


def _sbatch(job: Any, settings: Any) -> str:
    """The command by which the executor sends a job, without what the job runs."""
    from snakemake_executor_plugin_slurm.submit_string import get_submit_command, safe_quote
    from snakemake_executor_plugin_slurm.utils import set_gres_string
    from snakemake_executor_plugin_slurm.validation import validate_slurm_extra

    validate_slurm_extra(job)
    account, partition = (
        f"{flag} {safe_quote(job.resources.get(key))}" if job.resources.get(key) else ""
        for flag, key in (("-A", "slurm_account"), ("-p", "slurm_partition"))
    )
    params = {
        "run_uuid": "feedrate",
        "slurm_logfile": "/dev/null",
        "comment_str": job.rule.name,
        "account": account,
        "partition": partition,
        "workdir": "",
    }
    return str(get_submit_command(job, params, settings) + set_gres_string(job))


def _refusal(command: str) -> str:
    """Slurm's reason to refuse a job, with the request; empty where it would take it."""
    from snakemake.logging import logger

    answer = _ask(f"{command} --test-only --wrap true")
    if answer is None or answer.returncode == 0:
        return ""
    asked = " ".join(command.partition(" --comment ")[2].split()[1:])
    # --test-only refuses what no node can take now, a real job only what none ever can.
    answer = _ask(f"{command} {LATER} --wrap true")
    if answer is None or answer.returncode == 0:
        if answer:
            _ask(f"scancel {shlex.quote(answer.stdout.strip().partition(';')[0])}")
        logger.warning(f"No node can take it now; jobs will wait for: {asked}")
        return ""
    lines = [_OPENING.sub("", line) for line in answer.stderr.splitlines()]
    return f"{'; '.join(dict.fromkeys(filter(None, lines)))} (asked for: {asked})"


def _too_long(job: Any, tries: int) -> str:
    """Slurm accepts a time limit above its partition's, and lets the job wait for ever; empty where
    all of the tries keep below it."""
    partition = job.resources.get("slurm_partition")
    if not partition:
        return ""
    answer = _ask(f"sinfo --noheader --format %l --partition {shlex.quote(str(partition))}")
    limits = [minutes(line.strip()) for line in answer.stdout.splitlines()] if answer else []
    longest = max((limit for limit in limits if limit), default=None)
    if longest is None or None in limits:
        return ""
    for attempt in range(1, tries + 1):
        asked = job.rule.expand_resources(job.wildcards_dict, job.input, attempt, {"tmpdir"})
        if (asked.get("runtime") or 0) > longest:
            return (
                f"its time limit is {asked.runtime} minutes in try {attempt}, and the partition "
                f"{partition} allows {longest:.0f}: set `runtime`, or another partition"
            )
    return ""


def _ask(command: str) -> "subprocess.CompletedProcess[str] | None":
    """A command's answer; None where there is none in time."""
    try:
        return subprocess.run(
            command, shell=True, capture_output=True, text=True, timeout=ANSWER_S, check=False
        )
    except subprocess.TimeoutExpired:
        return None
