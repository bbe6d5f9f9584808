"""Failed jobs: why each failed, a report in spite of runs that failed in every attempt, and ends of
Slurm jobs that Snakemake would not see.

A job that Slurm kills, or whose node dies, leaves no outcome, so nothing that depends on it can be
made. After all other jobs, a second Snakemake on this host records such runs as failed and makes
the rest of the results. The next call of the workflow runs them again.
"""

import contextlib
import json
import logging
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from feedrate.core import paths, variables
from feedrate.core.errors import SENTENCE
from feedrate.core.files import write_json
from feedrate.core.processes import die_with_parent
from feedrate.core.slurm import KILLED_FOR_MEMORY, OUT_OF_MEMORY, end_of_file

MEANINGS = {
    "BOOT_FAIL": "its node did not start",
    "CANCELLED": "it was cancelled or preempted",
    "DEADLINE": "its deadline passed",
    "NODE_FAIL": "its node was lost",
    OUT_OF_MEMORY: "it used more host memory than it requested",
    "TIMEOUT": "it reached its time limit",
}
"""Slurm's job states (squeue(1), JOB STATE CODES) in words. FAILED explains nothing."""

UNKNOWN = "its process ended without a result; probably it was killed"

ALIKE = 3
"""After so many failures of a rule for the same cause, further ones are only counted."""

_ENDED = re.compile(r"SLURM-job '([^']+)' failed.*?SLURM status is: '(\w+)'", re.S)
_REFUSED = re.compile(r"SLURM sbatch failed\. The error message was '(.*?)'\.\s*\n", re.S)
_NOT_SENT = re.compile(r"Job submission failed with exception: (.+)")


class Failures:
    """Messages about failed jobs: one line each, and equal ones counted."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, str]] = Counter()
        self._first: dict[tuple[str, str], str] = {}

    def line(self, record: Mapping[str, Any], label: str) -> str:
        """`train_h100 workers=0, repeat 1 failed: why (log)`; empty if it is only counted. A job on
        this host has printed the reason itself."""
        rule = str(record.get("rule_name"))
        why = f": {cause(record)}" if record.get("rule_msg") else ""
        key = rule, re.sub(r"\d+", "", why)  # equal except for job numbers
        self._counts[key] += 1
        self._first.setdefault(key, why)
        if self._counts[key] > ALIKE:
            return ""
        logs = ", ".join(log for log in record.get("log") or () if log and Path(log).exists())
        return f"{rule} {label}".rstrip() + f" failed{why}{f' ({logs})' if logs else ''}"

    def rest(self) -> list[str]:
        """One line for each cause whose later failures were only counted."""
        return [
            f"{rule} failed {count} times{self._first[rule, key]}"
            for (rule, key), count in self._counts.items()
            if count > ALIKE
        ]


def is_refused(record: Mapping[str, Any]) -> bool:
    """Whether Slurm refused the job, for example for an unknown partition."""
    message = str(record.get("rule_msg") or "")
    return bool(_REFUSED.search(message) or _NOT_SENT.search(message))


def cause(record: Mapping[str, Any]) -> str:
    """Why the job of a `job_error` record failed, without a full stop."""
    message = str(record.get("rule_msg") or "")
    if refused := _REFUSED.search(message):
        lines = [re.sub(r"^sbatch: (error: )?", "", ln) for ln in refused[1].splitlines()]
        return f"Slurm refused the job: {'; '.join(line.strip() for line in lines if line.strip())}"
    if failed := _NOT_SENT.search(message):
        return f"the job could not be submitted to Slurm: {failed[1]}"
    text = _ends(record.get("log") or ())
    said = own_words(text)
    ended = _ENDED.search(message)
    if ended is None:
        return said or UNKNOWN
    number, state = ended.groups()
    if KILLED_FOR_MEMORY.search(text):
        state = OUT_OF_MEMORY
    if meaning := MEANINGS.get(state):
        said = "; ".join(filter(None, [meaning, said]))
    return f"Slurm job {number} ended as {state}{f': {said}' if said else ''}"


def own_words(text: str) -> str:
    """The last sentence that one of feedrate's programs wrote to a job's logs."""
    sentences = SENTENCE.findall(text)
    return str(sentences[-1]).strip().rstrip(":") if sentences else ""


def _ends(logs: Iterable[str]) -> str:
    """The last lines of the logs that exist, the first log's last."""
    found = []
    for log in logs:
        with contextlib.suppress(OSError):
            found.append(end_of_file(Path(log)))
    return "\n".join(reversed(found))


FOLDER = Path(".snakemake/feedrate")
ANY_OUTCOME = paths.OUTCOME.format(study="*", device="*", cell="*", repeat="*", identity="*")
CORES = 2
"""For parsing, tables and figures. This host may be a shared login node."""


class Causes(logging.Handler):
    """Records why jobs fail, by their output; a later attempt replaces an earlier one."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.of: dict[str, str] = {}
        self.refused: set[str] = set()

    def listen(self) -> None:
        """Receive Snakemake's log records from now on."""
        from snakemake.logging import logger

        logger.addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        """Handle one log record."""
        if str(getattr(record, "event", "")) != "job_error":
            return
        for output in record.__dict__.get("output") or ():
            self.of[output] = cause(record.__dict__)
            if is_refused(record.__dict__):
                self.refused.add(output)


def finish(workflow: Any, config: Any, causes: Causes) -> None:
    """If only runs failed in all attempts, record them as failed and make the rest."""
    from snakemake.logging import logger

    lost = find_lost(workflow.scheduler)
    if not lost or variables.LOST in os.environ:
        return
    if lost <= causes.refused and not any(Path().glob(ANY_OUTCOME)):
        return  # for example a wrong partition: there is nothing to report
    found = {path: causes.of.get(path, UNKNOWN) for path in lost}
    write_json(FOLDER / "lost.json", found)
    write_json(FOLDER / "lost.config.json", json.loads(json.dumps(config)))
    runs, them = ("1 run", "it") if len(lost) == 1 else (f"{len(lost)} runs", "them")
    logger.warning(
        f"{runs} failed in every attempt; recording {them} as failed and making the rest of the "
        "results on this host"
    )
    done = subprocess.run(
        [sys.executable, "-m", "snakemake", *_arguments(workflow)],
        env={**os.environ, variables.LOST: str(FOLDER / "lost.json")},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
        preexec_fn=die_with_parent,
    )
    lines = (line for line in done.stdout.splitlines() if not line.startswith("Using profile"))
    if text := "\n".join(lines).strip():
        logger.error(text)


def find_lost(scheduler: Any) -> set[str]:
    """The missing outputs of failed runs; none if others failed, or after a stop."""
    if scheduler is None or scheduler.running or scheduler.open_jobs:
        return set()
    failed = [one for job in scheduler.failed for one in (job.jobs if job.is_group() else [job])]
    if any(not job.rule.name.startswith(paths.TRAIN_RULE) for job in failed):
        return set()
    return {str(path) for job in failed for path in job.output if not Path(path).exists()}


def _arguments(workflow: Any) -> list[str]:
    """Snakemake's arguments for the same targets and configuration, on this host."""
    dag, methods = workflow.dag_settings, workflow.deployment_settings.deployment_method
    lists = {
        # Finished runs must stay, although a failed one has a new `attempt` among its params. With
        # times as the only trigger, only what depends on the lost runs is made again.
        "--rerun-triggers": ["mtime"],
        "--software-deployment-method": [method.item_to_choice() for method in methods],
        "--until": list(dag.until),
        "--omit-from": list(dag.omit_from),
        "--configfile": [str(FOLDER / "lost.config.json")],
    }
    return [
        *("--snakefile", str(workflow.main_snakefile)),
        *("--profile", str(Path(workflow.basedir) / "profiles/local")),
        *("--executor", "local", "--cores", str(CORES), "--retries", "0", "--nolock"),
        *("--logger", "feedrate", "--quiet", "rules", "progress"),
        *(word for flag, words in lists.items() if words for word in (flag, *words)),
        *("--", *map(str, dag.targets)),
    ]


# Ends of jobs that Snakemake's Slurm executor would not see, or would see late. It does not
# recognise the end of a job that was preempted, that the controller has forgotten, or that sacct
# calls `CANCELLED by <user>`, and would wait for it until somebody stops the workflow. It also
# checks less often the longer no job has succeeded: a node may be idle for up to three minutes.

Query = Callable[[str, Any], Awaitable[tuple[dict[str, str] | None, float | None]]]
"""The executor's query: from a command and a logger to the states by job and the seconds it took,
or None for both if Slurm did not answer (query_job_status of snakemake-executor-plugin-slurm
2.8.0)."""

PREEMPTED = "PREEMPTED"
CANCELLED = "CANCELLED"
LONGEST_PAUSE_S = 30
"""Between two checks of all jobs; the executor has no option for it."""

FORGOTTEN = "UNKNOWN"
"""The executor takes it for an end, and Snakemake then checks that the results exist."""


def mend_executor(settings: Any) -> None:
    """Make the executor of this process see every end of a job soon. `settings` are its own."""
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
    """The executor's query, with states that it knows; `requeue`: Slurm restarts preempted jobs."""

    def __init__(self, query: Query, *, requeue: bool) -> None:
        self._query, self._requeue = query, requeue
        self._seen = set[str]()

    async def __call__(
        self, command: str, logger: Any
    ) -> tuple[dict[str, str] | None, float | None]:
        """Query, and translate the states into those that the executor knows."""
        states, took_s = await self._query(command, logger)
        if states is None:
            return None, took_s
        known = {job: self._word(state) for job, state in states.items()}
        self._seen |= known.keys()
        return dict.fromkeys(self._seen, FORGOTTEN) | known, took_s

    def _word(self, state: str) -> str:
        word = state.split()[0] if state else state  # "CANCELLED by 1000"
        return CANCELLED if word == PREEMPTED and not self._requeue else word
