"""Before the first job: would Slurm take what the rules ask for, and would their end be seen?

Some requests Slurm refuses only when the job is sent, which may be hours after the start; others it
accepts, and never starts. Here each is put to it beforehand, in the executor's own words.
"""

import os
import re
import shlex
import subprocess
from typing import Any

from feedrate.cluster.slurm import minutes
from feedrate.cluster.states import mend_executor
from feedrate.config.workflow import WorkflowConfig

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
