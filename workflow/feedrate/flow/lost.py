"""Runs whose jobs were lost in every try: recorded as failed, so that the report can be written.

A job that Slurm kills, or that dies with its node, leaves no outcome, and what depends on it cannot
be made. When all else is done, a second Snakemake, on this host alone, records such runs as failed
and makes the rest. The next call of the workflow tries them again.
"""

import contextlib
import json
import logging
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from feedrate.core import paths, variables
from feedrate.core.errors import SENTENCE
from feedrate.core.files import write_json
from feedrate.core.processes import die_with_parent
from feedrate.core.slurm import KILLED_FOR_MEMORY, OUT_OF_MEMORY, end_of_file

# Why a job failed, in one sentence, from Snakemake's record of it and what the job itself said.

MEANINGS = {
    "BOOT_FAIL": "its node did not start",
    "CANCELLED": "cancelled, or another job took its place",
    "DEADLINE": "its deadline passed",
    "NODE_FAIL": "its node was lost",
    OUT_OF_MEMORY: "it used more of the node's memory than it asked for",
    "TIMEOUT": "its time limit was reached",
}
"""Slurm's states in words (squeue(1), JOB STATE CODES); FAILED says nothing by itself."""

UNKNOWN = "its process ended without a result, as one does that is killed"

ALIKE = 3
"""So many failures of a rule for the same cause are told one by one."""

_ENDED = re.compile(r"SLURM-job '([^']+)' failed.*?SLURM status is: '(\w+)'", re.S)
_REFUSED = re.compile(r"SLURM sbatch failed\. The error message was '(.*?)'\.\s*\n", re.S)
_NOT_SENT = re.compile(r"Job submission failed with exception: (.+)")


class Failures:
    """Tells of failed jobs in a line each, and not a hundred times the same."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, str]] = Counter()
        self._first: dict[tuple[str, str], str] = {}

    def line(self, record: Mapping[str, Any], label: str) -> str:
        """`train_h100 workers=0, repeat 1 failed: why (log)`; empty where enough were told.

        A job on this host has said by itself why it failed.
        """
        rule = str(record.get("rule_name"))
        why = f": {cause(record)}" if record.get("rule_msg") else ""
        key = rule, re.sub(r"\d+", "", why)  # alike but for the jobs' numbers
        self._counts[key] += 1
        self._first.setdefault(key, why)
        if self._counts[key] > ALIKE:
            return ""
        logs = ", ".join(log for log in record.get("log") or () if log and Path(log).exists())
        return f"{rule} {label}".rstrip() + f" failed{why}{f' ({logs})' if logs else ''}"

    def rest(self) -> list[str]:
        """What was not told one by one."""
        return [
            f"{rule} failed {count} times{self._first[rule, key]}"
            for (rule, key), count in self._counts.items()
            if count > ALIKE
        ]


def is_refused(record: Mapping[str, Any]) -> bool:
    """Whether Slurm took the job at all: a partition or resource that is not there."""
    message = str(record.get("rule_msg") or "")
    return bool(_REFUSED.search(message) or _NOT_SENT.search(message))


def cause(record: Mapping[str, Any]) -> str:
    """Why the job of a `job_error` record failed; no full stop at the end."""
    message = str(record.get("rule_msg") or "")
    if refused := _REFUSED.search(message):
        lines = [re.sub(r"^sbatch: (error: )?", "", ln) for ln in refused[1].splitlines()]
        return f"Slurm refused the job: {'; '.join(line.strip() for line in lines if line.strip())}"
    if failed := _NOT_SENT.search(message):
        return f"the job could not be sent to Slurm: {failed[1]}"
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
    """The last sentence with which a program of ours ended, from a job's logs."""
    sentences = SENTENCE.findall(text)
    return str(sentences[-1]).strip().rstrip(":") if sentences else ""


def _ends(logs: Iterable[str]) -> str:
    """The last lines of those logs that are there, the first log's at the end."""
    found = []
    for log in logs:
        with contextlib.suppress(OSError):
            found.append(end_of_file(Path(log)))
    return "\n".join(reversed(found))


FOLDER = Path(".snakemake/feedrate")
ANY_OUTCOME = paths.OUTCOME.format(study="*", device="*", cell="*", repeat="*")
CORES = 2
"""For parsing, tables and figures; this may be a login node, which others use too."""


class Causes(logging.Handler):
    """Notes why jobs fail, by their output; a later try replaces an earlier one."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.of: dict[str, str] = {}
        self.refused: set[str] = set()

    def listen(self) -> None:
        """Listen to Snakemake's log from now on."""
        snakemake_log().addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        """Take in one record of Snakemake's."""
        if str(getattr(record, "event", "")) != "job_error":
            return
        for output in record.__dict__.get("output") or ():
            self.of[output] = cause(record.__dict__)
            if is_refused(record.__dict__):
                self.refused.add(output)


def snakemake_log() -> logging.Logger:
    """The log that all of Snakemake's records go through."""
    from snakemake.logging import logger

    return logger


def finish(workflow: Any, config: Any, causes: Causes) -> None:
    """Called by the driver when jobs have failed: if only training jobs have, in all their tries,
    and all else is done that could be, record them and make what is left."""
    lost = find_lost(workflow.scheduler)
    if not lost or variables.LOST in os.environ:
        return
    if lost <= causes.refused and not any(Path().glob(ANY_OUTCOME)):
        return  # a wrong partition, say: there is nothing to report
    found = {path: causes.of.get(path, UNKNOWN) for path in lost}
    write_json(FOLDER / "lost.json", found)
    write_json(FOLDER / "lost.config.json", json.loads(json.dumps(config)))
    logger = snakemake_log()
    what = "1 run was" if len(lost) == 1 else f"{len(lost)} runs were"
    them = "it" if len(lost) == 1 else "them"
    logger.warning(
        f"{what} lost in every try; recording {them} as failed, and making the rest of the results "
        "on this host"
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
    if text := _worth_saying(done.stdout):
        logger.error(text)


def find_lost(scheduler: Any) -> set[str]:
    """What failed jobs of devices did not leave; none where anything else failed, or the workflow
    was stopped before its end."""
    if scheduler is None or scheduler.running or scheduler.open_jobs:
        return set()
    failed = list(_single_jobs(scheduler.failed))
    if any(not job.rule.name.startswith((paths.TRAIN_RULE, paths.EVALUATE_RULE)) for job in failed):
        return set()
    return {str(path) for job in failed for path in job.output if not Path(path).exists()}


def _single_jobs(jobs: Iterable[Any]) -> Iterator[Any]:
    for job in jobs:
        yield from job.jobs if job.is_group() else [job]


def _arguments(workflow: Any) -> list[str]:
    """Snakemake's arguments for the same targets and configuration, on this host."""
    dag, methods = workflow.dag_settings, workflow.deployment_settings.deployment_method
    lists = {
        # What is done stays: a run that failed would be tried again for its next attempt's number.
        # Only what follows from the lost runs is left to make, and is older than their outcomes.
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


def _worth_saying(output: str) -> str:
    lines = [line for line in output.splitlines() if not line.startswith("Using profile")]
    return "\n".join(lines).strip()
