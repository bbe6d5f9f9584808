"""The job of a run: `python -m feedrate train --spec SPEC --data MANIFEST --out RUN …`.

Brings one run to its outcome: trained here, or decided by what earlier tries and smaller cells
showed. docs/architecture.md lists the ends with their exit codes: a fault of the machine leaves no
outcome but in the last try.
"""

import os
import shlex
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from feedrate.config.devices import launcher_limit
from feedrate.config.errors import ConfigError
from feedrate.config.spec import TIMEOUT_MIN, RunSpec
from feedrate.core import slurm
from feedrate.core.errors import Masker, explain_os_error, tell
from feedrate.core.files import digest_file, digest_value, write_json
from feedrate.core.paths import OUTCOME_NAME, SPEC_NAME, TRAINER_NAME
from feedrate.core.variables import driver_call
from feedrate.data.hub import check_fetched
from feedrate.data.manifest import DataError, check_prepared, check_store
from feedrate.devices.base import DeviceError
from feedrate.devices.host import host_lock, machine_state, other_training_jobs
from feedrate.devices.launch import prepare
from feedrate.jobs import tries, workplace
from feedrate.jobs.events import Result
from feedrate.jobs.outcome import MachineFault, classify_exit
from feedrate.jobs.processes import Interrupted, ProgressLine, StopRequests, run_processes
from feedrate.models.build import fetched_index

SCHEMA = 2
"""Version of outcome.json."""
FAULTS = (DataError, DeviceError, MachineFault, OSError)
"""Faults of the machine or the data: another try may succeed."""


def train(
    spec: RunSpec,
    data: Path,
    out: Path,
    *,
    source_digest: str = "",
    try_: int | None = None,
    timeout_min: float = TIMEOUT_MIN,
    smaller: list[Path] | None = None,
    store: Path | None = None,
    winoground: Path | None = None,
    push_to: str = "",
    report_to: str = "",
    model_pattern: str = "",
    quiet: bool = False,
) -> None:
    """Bring one run to its outcome.

    --data            the dataset's manifest.json
    --out             the run's folder
    --source-digest   digest of the measured code
    --try             Snakemake's count of its tries, from 1; the last records a machine fault
    --timeout-min     minutes that the job may take
    --smaller         folders of runs that need no more memory: one that ran out of memory decides
    --store           index.json of the pictures prepared for the model
    --winoground      examples.json, on which the model is evaluated too
    --push-to         repository on the hub for the model
    --report-to       the Trainer's integrations, separated by commas
    --model-pattern   the name that the device must report
    --quiet           print no progress
    """
    check_protocol(spec)
    call = driver_call()
    requests = StopRequests(call)
    progress = ProgressLine(spec, quiet=quiet or (call is not None and call.quiet))
    place = workplace.workplace(out, call.since if call else workplace.NO_CALL)
    job = Job(spec, data, out, place.path, source_digest, progress)
    if workplace.is_complete(out):
        progress.report(f"{out} is complete already")
        return
    try:
        check_inputs(spec, data.parent, store)
        if result := tries.result_of_earlier_tries(out, place):
            job.publish(result)
        elif run := tries.smaller_out_of_memory(smaller or []):
            job.publish(Result("out_of_memory", tries.not_tried(run.parent.name)), smaller=str(run))
        else:
            options = {
                "store": store,
                "winoground": winoground,
                "push-to": push_to if spec.repeat == 1 and spec.task == "training" else "",
                "report-to": report_to,
                "model-pattern": model_pattern,
            }
            with host_lock(progress.report, requests.check) as locks:
                if workplace.is_complete(out):
                    progress.report(f"another job has published {out}: its result counts")
                else:
                    job.measure(options, timeout_min, locks, requests)
    except Interrupted as stop:
        workplace.keep_log(place.path)
        why = slurm.why_stopped()
        raise Interrupted(f"{stop} ({why})" if why else str(stop), stop.exit_code) from None
    except FAULTS as fault:
        log = workplace.keep_log(place.path)
        is_last_try = try_ is not None and try_ > (call.retries if call else 0)
        if is_last_try:
            cause = explain_os_error(fault) if isinstance(fault, OSError) else str(fault)
            tell("feedrate train", cause)
            job.publish(Result("failed", cause), infrastructure=True)
        elif isinstance(fault, MachineFault) and log.exists():
            raise MachineFault(f"{fault}; see {log}") from None
        else:
            raise


@dataclass(frozen=True)
class Job:
    """One try of a run: measures it in a workplace, and publishes the result."""

    spec: RunSpec
    data: Path
    out: Path
    place: Path
    source_digest: str
    progress: ProgressLine

    def measure(
        self,
        options: Mapping[str, Path | str | None],
        timeout_min: float,
        locks: Sequence[int],
        requests: StopRequests,
    ) -> None:
        """Run the processes of the job, with further options of the worker and the inherited locks
        of the host, and publish their result."""
        shutil.rmtree(self.place, ignore_errors=True)
        (self.place / TRAINER_NAME).mkdir(parents=True)
        write_json(self.place / SPEC_NAME, msgspec.to_builtins(self.spec))
        module = ["feedrate", "worker", "--run", str(self.place), "--data", str(self.data.parent)]
        module += [f"--{name}={value}" for name, value in options.items() if value is not None]
        folders = [self.place, self.data.parent]
        folders += [value.parent for value in options.values() if isinstance(value, Path)]
        launch = prepare(self.spec, module, folders, os.environ)
        machine, commit = machine_state(), read_commit()
        started, start_s = datetime.now(UTC), time.monotonic()
        end = run_processes(
            self.place,
            launch,
            limit_min=timeout_min,
            locks=locks,
            requests=requests,
            progress=self.progress,
        )
        # Another job that began later is seen only now.
        machine["other_training_jobs"] = max(machine["other_training_jobs"], other_training_jobs())
        self.publish(
            classify_exit(self.spec, self.place, end),
            exit_code=end.exit_code,
            commit=commit,
            started_at=started.isoformat(timespec="seconds"),
            duration_s=round(time.monotonic() - start_s, 3),
            machine_before=machine,
            host_peak_memory_gib=end.peak_gib,
        )

    def publish(self, result: Result, **facts: Any) -> None:
        """Write the outcome with these facts, and publish the workplace as the run."""
        mask = Masker()
        identity, attempt = workplace.parts_of(self.out)
        command = ["python", "-m", "feedrate", "train", "--spec", str(self.out / SPEC_NAME)]
        command += ["--data", str(self.data), "--out", str(self.out)]
        now = datetime.now(UTC).isoformat(timespec="seconds")
        self.place.mkdir(parents=True, exist_ok=True)
        write_json(self.place / SPEC_NAME, msgspec.to_builtins(self.spec))
        outcome = {
            "schema": SCHEMA,
            "identity": identity,
            "attempt": attempt,
            "call": call.since if (call := driver_call()) else "",
            "command": mask(shlex.join(command)),
            "commit": read_commit(),
            "source_digest": self.source_digest,
            "data_digest": digest_file(self.data) if self.data.is_file() else "",
            "spec_digest": digest_value(msgspec.to_builtins(self.spec)),
            "status": result.status,
            "infrastructure": False,
            "cause": mask(result.cause),
            "exit_code": 1,
            "started_at": now,
            "ended_at": now,
            "files": workplace.digests(self.place),
        }
        write_json(self.place / OUTCOME_NAME, outcome | facts)
        if not workplace.publish(self.place, self.out):
            self.progress.report(f"another job has published {self.out}: its result counts")
        elif result.cause:
            self.progress.report(f"{result.status}: {result.cause}")
        workplace.remove_ended(self.out)


def read_commit() -> str:
    """The project's commit, with `-dirty` if files differ from it; empty outside a repository."""
    command = ["git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    folder = Path(__file__).parent
    try:
        return subprocess.check_output(
            command, cwd=folder, stderr=subprocess.DEVNULL, text=True, timeout=10
        ).strip()
    except (OSError, subprocess.SubprocessError):
        return ""


def check_protocol(spec: RunSpec) -> None:
    """Raise ConfigError if no step is left to measure, or if no launcher starts the ranks."""
    protocol = spec.protocol
    if protocol.steps <= protocol.warmup_steps:
        raise ConfigError(
            f"protocol.steps: {protocol.steps} leaves no step to measure after "
            f"protocol.warmup_steps: {protocol.warmup_steps}"
        )
    if spec.count > (most := launcher_limit(spec.launcher, "MAX_PROCESSES")):
        raise ConfigError(
            f"launcher: {spec.launcher} starts at most {most:g} process, but count is {spec.count}"
        )


def check_inputs(spec: RunSpec, prepared: Path, store: Path | None) -> None:
    """Raise DataError if the data, the store or fetched weights are not as recorded. This may take
    minutes: before the lock."""
    check_prepared(prepared)
    if store:
        check_store(store.parent)
    if fetched := fetched_index(spec.settings.model):
        check_fetched(fetched)
