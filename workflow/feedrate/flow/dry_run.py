"""What a dry-run of Snakemake says of itself, as data: its configuration, and every job.

The Snakefile writes the one, the logger `feedrate` the other, into the folder that the environment
variable names. So what `feedrate plan` shows is what Snakemake would run, and nothing is read from
text that is meant for people.
"""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TextIO

import msgspec

from feedrate.core import variables

CONFIGURATION = "configuration.json"
JOBS = "jobs.jsonl"
INTERNAL = ("_cores", "_nodes", "tmpdir", "tries")
"""Resources that say nothing of what a job asks for."""

Resources = dict[str, int | str]


class Configuration(msgspec.Struct, frozen=True):
    """How the dry-run's Snakemake was called."""

    config: dict[str, Any]
    executor: str
    rules: list[str]
    """All rules, as the Snakefile has them."""
    local_rules: list[str]
    """Rules that run beside Snakemake whatever the executor."""
    set_resources: list[str]
    """Rules that the profile, or the command line, gives resources of their own."""


class Job(msgspec.Struct, frozen=True):
    """A job that would run."""

    rule: str
    output: list[str]
    threads: int
    resources: Resources


class DryRun(msgspec.Struct, frozen=True):
    """All that a dry-run said."""

    configuration: Configuration
    jobs: list[Job]

    @property
    def on_cluster(self) -> bool:
        """Whether jobs are sent anywhere."""
        return self.configuration.executor not in ("", "local")

    def runs_here(self, job: Job) -> bool:
        """Whether a job runs on the host of Snakemake itself."""
        return not self.on_cluster or job.rule in self.configuration.local_rules


def is_wanted() -> bool:
    """Whether this process is to write."""
    return variables.PLAN in os.environ


def tell_configuration(config: Mapping[str, Any], workflow: Any) -> None:
    """Write how this Snakemake was called; for the Snakefile, after its last rule."""
    from snakemake.cli import parse_args  # loaded already: this is its process

    said = Configuration(
        config=dict(config),
        executor=parse_args(sys.argv[1:])[1].executor or "",
        rules=[rule.name for rule in workflow.rules],
        local_rules=sorted(workflow._localrules),  # no public name; to `is_local`, now all are
        set_resources=sorted(workflow.resource_settings.overwrite_resources),
    )
    (Path(os.environ[variables.PLAN]) / CONFIGURATION).write_bytes(msgspec.json.encode(said))


class JobWriter:
    """Writes jobs, for the logger."""

    def __init__(self) -> None:
        """Open the file; it is there even where no job would run."""
        self._stream: TextIO = (Path(os.environ[variables.PLAN]) / JOBS).open("w", encoding="utf-8")

    def add(self, record: Mapping[str, Any]) -> None:
        """Write the job of a `job_info` record."""
        resources = {
            name: value if isinstance(value, int) else str(value)
            for name, value in record["resources"].items()
            if name not in INTERNAL and value is not None
        }
        job = Job(
            rule=str(record["rule_name"]),
            output=list(map(str, record["output"])),
            threads=int(record["threads"]),
            resources=resources,
        )
        self._stream.write(f"{msgspec.json.encode(job).decode()}\n")

    def close(self) -> None:
        """Complete the file."""
        self._stream.close()


def read(folder: Path) -> DryRun:
    """What a dry-run wrote. Raises OSError where it wrote nothing."""
    said = msgspec.json.decode((folder / CONFIGURATION).read_bytes(), type=Configuration)
    decoder = msgspec.json.Decoder(Job)
    lines = (folder / JOBS).read_bytes().splitlines()
    return DryRun(said, [decoder.decode(line) for line in lines])
