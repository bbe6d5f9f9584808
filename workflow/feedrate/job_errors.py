"""Why a job failed, in one sentence, from Snakemake's record of it and what the job itself said."""

import contextlib
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from feedrate.cluster.slurm import KILLED_FOR_MEMORY, OUT_OF_MEMORY, end_of_file
from feedrate.endings import SENTENCE

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
