"""Runs whose jobs were lost in every try: recorded as failed, so that the report can be written.

A job that Slurm kills, or that dies with its node, leaves no outcome, and what depends on it cannot
be made. When all else is done, a second Snakemake, on this host alone, records such runs as failed
and makes the rest. The next call of the workflow tries them again.
"""

import json
import logging
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from feedrate import job_errors, paths, variables
from feedrate.devices.leash import die_with_parent
from feedrate.files import write_json

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
            self.of[output] = job_errors.cause(record.__dict__)
            if job_errors.is_refused(record.__dict__):
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
    found = {path: causes.of.get(path, job_errors.UNKNOWN) for path in lost}
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
